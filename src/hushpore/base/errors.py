"""Errors that a user can act on; each message says what was expected, what was got, what to do."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import ModuleType


#: What is said where memory ran out and nothing more is known.
NO_MEMORY = "There was not enough memory. Close other programs, or crop or bin the scan."


class HushporeError(Exception):
    """Any failure that is explained in the user's words. Front ends show its message alone."""


class InputError(HushporeError, ValueError):
    """The data or a setting cannot be used as it is."""


class NotTrustedError(InputError):
    """A file would take far more memory or time than its bytes; the user can allow it to."""


class OutputError(HushporeError, OSError):
    """A result cannot be written where it was asked for."""


class DeviceError(HushporeError, RuntimeError):
    """The device asked for is not there, or it does not work."""


class MemoryLimitError(HushporeError, MemoryError):
    """The work does not fit, even in its smallest pieces."""

    def __new__(cls, *args: object) -> Self:
        """Make one; that of `MemoryError` refuses to be called by name, as where one is sent on."""
        return HushporeError.__new__(cls, *args)


class MissingPackageError(HushporeError, ImportError):
    """An optional package is needed; the message gives the command that installs it."""


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message; where it has none, the exception's type."""
    return str(error).partition("\n")[0] or type(error).__name__


def import_optional(package: str, purpose: str, extra: str = "") -> ModuleType:
    """Import a package that hushpore works without.

    Parameters
    ----------
    package : str
        Its name.
    purpose : str
        What needs it, for the message.
    extra : str, optional
        The extra of hushpore that brings it; empty where it is named itself.

    Raises
    ------
    MissingPackageError
        If it is not installed; gives the command that installs it.
    """
    try:
        return import_module(package)
    except ImportError as error:
        wanted = f"'hushpore[{extra}]'" if extra else package
        raise MissingPackageError(
            f"{purpose} needs a further package: pip install {wanted}"
        ) from error
