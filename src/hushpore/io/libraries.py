"""What other libraries make of odd files: they log, warn, and raise errors of any kind."""

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
    """Keeps the records of this thread and lets those of others pass."""

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
    """Collect what this thread logs as a warning or worse within; nothing of it is shown.

    Yields: the messages.
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
    """Collect the warnings raised and logged within, as `captured_log`.

    Those of the `warnings` module are added at the end of the block. Its filters belong to the
    whole process, so this is not for several threads at once.
    """
    with warnings.catch_warnings(record=True) as caught, captured_log(logger) as messages:
        warnings.simplefilter("always")
        yield messages
    messages.extend(str(warning.message) for warning in caught)


@contextmanager
def explained_damage(
    explain: Callable[[Exception], Exception], *others: type[Exception]
) -> Iterator[None]:
    """Raise what `explain` makes of an error of any kind, as damaged files make libraries raise.

    Errors of hushpore, of the system and of memory, and `others`, say themselves what is wrong.
    """
    try:
        yield
    except (HushporeError, OSError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, others):
            raise
        raise explain(error) from error
