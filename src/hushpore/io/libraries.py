"""Handling of the logs, warnings and errors that other libraries produce for unusual files."""

from __future__ import annotations

import logging
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hushpore.base.errors import HushporeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Collector(logging.Filter):
    """Collects the records of this thread; those of other threads pass."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []
        self._thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread or record.levelno < logging.WARNING:
            return True
        self.messages.append(record.getMessage())
        return False


@contextmanager
def captured_log(logger: str) -> Iterator[list[str]]:
    """Collect what this thread logs at level WARNING or above inside the block, without output.

    Yields: the list of messages.
    """
    collector = _Collector()
    target = logging.getLogger(logger)
    target.addFilter(collector)
    try:
        yield collector.messages
    finally:
        target.removeFilter(collector)


@contextmanager
def captured_warnings(logger: str) -> Iterator[list[str]]:
    """Collect the warnings issued and logged inside the block, as `captured_log`.

    Warnings of the `warnings` module are added at the end of the block. Its filters are global, so
    only one thread may use this at a time.
    """
    with warnings.catch_warnings(record=True) as caught, captured_log(logger) as messages:
        warnings.simplefilter("always")
        yield messages
    messages.extend(str(warning.message) for warning in caught)


@contextmanager
def explained_damage(
    explain: Callable[[Exception], Exception], *others: type[Exception]
) -> Iterator[None]:
    """Convert errors of any type, which libraries raise for damaged files, with `explain`.

    Errors of hushpore, OSError, MemoryError and `others` pass unchanged.
    """
    try:
        yield
    except (HushporeError, OSError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, others):
            raise
        raise explain(error) from error
