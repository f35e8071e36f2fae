"""Errors that a user can act on; each message says what was expected, what was got, what to do."""

from __future__ import annotations


class HushporeError(Exception):
    """Any failure that is explained in the user's words. Front ends show its message alone."""


class InputError(HushporeError, ValueError):
    """The data or a setting cannot be used as it is."""


class OutputError(HushporeError, OSError):
    """A result cannot be written where it was asked for."""


class DeviceError(HushporeError, RuntimeError):
    """The device asked for is not there, or it does not work."""


class MemoryLimitError(HushporeError, MemoryError):
    """The work does not fit, even in its smallest pieces."""


class MissingPackageError(HushporeError, ImportError):
    """An optional package is needed; the message gives the command that installs it."""
