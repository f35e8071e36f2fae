"""Errors for users; each message says what was expected, what was found and what to do."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import ModuleType


#: Message for an out-of-memory error without further information.
NO_MEMORY = "There was not enough memory. Close other programs, or crop or bin the scan."


class HushporeError(Exception):
    """Base of all errors explained to the user. Front ends show only the message."""


class InputError(HushporeError, ValueError):
    """Unusable data or an invalid setting."""


class NotTrustedError(InputError):
    """File that would use far more memory or time than its size suggests; needs consent."""


class OutputError(HushporeError, OSError):
    """Result that cannot be written to its target."""


class DeviceError(HushporeError, RuntimeError):
    """Requested device that is missing or does not work."""


class MemoryLimitError(HushporeError, MemoryError):
    """Work that does not fit into memory, even in the smallest pieces."""

    def __new__(cls, *args: object) -> Self:
        """Create the error; `MemoryError.__new__` cannot be called by name, as in unpickling."""
        return HushporeError.__new__(cls, *args)


class MissingPackageError(HushporeError, ImportError):
    """Missing optional package; the message gives the command that installs it."""


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an exception, or its type if there is none."""
    return str(error).partition("\n")[0] or type(error).__name__


def import_optional(package: str, purpose: str, extra: str = "") -> ModuleType:
    """Import an optional package.

    Parameters
    ----------
    package : str
        Name of the package.
    purpose : str
        What needs the package, for the message.
    extra : str, optional
        Extra of hushpore that installs it; empty to name the package itself.

    Raises
    ------
    MissingPackageError
        If the package is not installed; gives the command that installs it.
    """
    try:
        return import_module(package)
    except ImportError as error:
        wanted = f"'hushpore[{extra}]'" if extra else package
        raise MissingPackageError(
            f"{purpose} needs another package: pip install {wanted}"
        ) from error
