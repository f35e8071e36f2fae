"""Arrays and captures that refuse what would make the host wait for a GPU, and counts of it.

NumPy and PyTorch on a CPU do at once what on a GPU is a wait, or is not allowed while a CUDA graph
is captured. Here it is an error.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class WaitError(AssertionError):
    """The host would wait for the device."""


def _refused(what: str) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> Any:
        raise WaitError(f"{what} waits for the GPU")

    return refuse


class DeviceArray(np.ndarray):  # type: ignore[type-arg]
    """An array of a GPU: of which the host knows shape and type, and no value.

    It is one of NumPy's, which refuses what makes CuPy wait for the device, or CuPy does not have.
    """

    for _name in ("int", "float", "bool", "complex", "index", "iter", "contains"):
        locals()[f"__{_name}__"] = _refused(f"{_name}() of an array")
    for _name in ("get", "item", "tolist", "nonzero", "tobytes", "tofile", "put", "compress"):
        locals()[_name] = _refused(f".{_name}()")
    del _name

    def __getitem__(self, key: Any) -> DeviceArray:
        return _on_device(super().__getitem__(_index(key)))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_index(key), _given(value))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **how: Any) -> Any:
        how = {name: _host(value) for name, value in how.items()}
        return _on_device(getattr(ufunc, method)(*(_host(_given(each)) for each in inputs), **how))

    def __array_function__(self, function: Any, *_: Any) -> Any:
        raise TypeError(f"{function.__name__} of NumPy was given an array of the device")

    def __dlpack__(self, **how: Any) -> Any:
        return _host(self).__dlpack__(**how)

    def sum(self, *args: Any, **how: Any) -> DeviceArray:  # type: ignore[override]
        """Sum, on the device."""
        return _on_device(_host(self).sum(*args, **how))

    def any(self, *args: Any, **how: Any) -> DeviceArray:  # type: ignore[override]
        """Whether any is true, on the device."""
        return _on_device(_host(self).any(*args, **how))


class StrictCupy:
    """As much of CuPy as is known not to wait, for `DeviceArray`."""

    def __getattr__(self, name: str) -> Any:
        if name not in _KNOWN:
            raise WaitError(f"cupy.{name} is not known to be free of waits")
        function = getattr(np, name)

        def call(*args: Any, **how: Any) -> DeviceArray:
            plain = [_plain(each) for each in args]
            named = {key: _plain(value) for key, value in how.items()}
            return _on_device(function(*plain, **named))

        return call

    def from_dlpack(self, values: Any) -> DeviceArray:
        """Take over memory of PyTorch."""
        return _on_device(np.from_dlpack(values))


#: Of CuPy: what has a size that does not depend on values, and leaves them where they are.
_KNOWN = {
    "empty", "zeros", "ones", "full", "arange", "concatenate", "cumsum", "argsort", "copyto",
    "ascontiguousarray", "where",
}  # fmt: skip


def _host(values: Any) -> Any:
    if isinstance(values, tuple):
        return tuple(map(_host, values))
    return values.view(np.ndarray) if isinstance(values, DeviceArray) else values


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return _host(_given(value))


def _given(value: Any) -> Any:
    """Return what an operation may be given: numbers, and arrays of the device."""
    if isinstance(value, np.ndarray) and not isinstance(value, DeviceArray):
        raise TypeError("an array of the host was given where CuPy takes one of the device")
    return value


def _index(key: Any) -> Any:
    parts = key if isinstance(key, tuple) else (key,)
    for each in parts:
        if isinstance(each, (np.ndarray, list)):
            if np.asarray(_host(each)).dtype == np.bool_:
                raise WaitError("a boolean mask is counted, and that waits for the GPU")
            _given(each)
    return _host(key)


def _on_device(values: Any) -> Any:
    return None if values is None else np.asarray(values).view(DeviceArray)


class CaptureError(RuntimeError):
    """What was asked for cannot be part of a CUDA graph."""


#: Operations of PyTorch whose result has a size, or is a value, that the host must know.
_WAITING = {
    "_local_scalar_dense", "nonzero", "nonzero_numpy", "equal", "allclose", "is_nonzero",
    "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "bincount", "histc",
}  # fmt: skip

#: Those that a capture does not allow besides.
_REFUSED = {"lift_fresh", "_pin_memory"}

#: Operations that compute nothing: the host alone is busy with them.
_VIEWS = {
    "detach", "view", "_unsafe_view", "slice", "select", "expand", "unsqueeze", "squeeze", "t",
    "permute", "transpose", "alias",
}  # fmt: skip

#: What makes a tensor of values of the host: a copy that the host waits for.
_SENDING = ("tensor", "as_tensor", "from_numpy")

#: Methods that bring values to the host.
_METHODS = (
    "numpy", "tolist", "cpu", "item", "pin_memory", "__array__", "__repr__", "__format__"
)  # fmt: skip
_READING = {getattr(torch.Tensor, name) for name in _METHODS}

_DRAWING = ("rand", "normal", "uniform", "bernoulli", "random", "dropout", "exponential")


class Operations(TorchDispatchMode):
    """Counts, by their names, the operations that the host asks PyTorch for."""

    def __init__(self) -> None:
        super().__init__()
        self.of: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.of[_name_of(function)] += 1
        return function(*args, **(kwargs or {}))

    @property
    def computing(self) -> int:
        """How many of them compute something."""
        return sum(count for name, count in self.of.items() if name not in _VIEWS)


class Waits(TorchDispatchMode):
    """Counts what a host would wait for a GPU for, by the class or function of a package that asks.

    `package`: its folder. Reading a tensor is counted while `reads` is entered, too.
    """

    def __init__(self, package: Path) -> None:
        super().__init__()
        self._package = package
        self.of: Counter[str] = Counter()
        self.reads = _Methods(self.count)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if _waits(_name_of(function), args):
            self.count()
        return function(*args, **(kwargs or {}))

    def count(self, *_: Any) -> None:
        """Count one, of whatever calls now."""
        frame = sys._getframe(1)
        while frame is not None and self._package not in Path(frame.f_code.co_filename).parents:
            frame = frame.f_back  # type: ignore[assignment]
        asks = "test" if frame is None else frame.f_code.co_qualname.partition(".")[0]
        self.of[asks] += 1


def _name_of(function: Any) -> str:
    name: str = function.name().removeprefix("aten::").partition(".")[0]
    return name


def _waits(name: str, args: Any) -> bool:
    return name in _WAITING or (name in ("index", "index_put", "index_put_") and _has_mask(args[1]))


class _Allowed(TorchDispatchMode):
    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        # PyTorch hands out another object of Python each time
        self._generators = {each._cdata for each in generators}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = _name_of(function)
        if name in _REFUSED or _waits(name, args):
            raise CaptureError(f"{name} is not permitted while a stream is captured")
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Generator)]
        if any(name.startswith(each) for each in _DRAWING) and not given:
            raise CaptureError(f"{name} draws from a generator that is not of the job")
        if any(each._cdata not in self._generators for each in given):
            raise CaptureError(f"{name} draws from a generator that is not registered")
        if (kwargs or {}).get("pin_memory"):
            raise CaptureError(f"{name} allocates pinned memory")
        return function(*args, **(kwargs or {}))


class _Methods(TorchFunctionMode):
    """Tells of methods that bring values to the host."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in _READING:
            self._tell(function.__name__)
        return function(*args, **(kwargs or {}))


def _has_mask(indices: Any) -> bool:
    return any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in indices)


@contextmanager
def capturing(*generators: torch.Generator | None) -> Iterator[None]:
    """Refuse, with CaptureError, what cannot be captured as a CUDA graph.

    That is: values of the host that are sent, or of the device that are read; sizes that depend on
    values; pinned memory; numbers drawn from generators that are not registered; new seeds.
    """
    registered = [each for each in generators if each is not None]
    seeds = [each.initial_seed() for each in registered]

    def refuse(*_: object, **__: object) -> Any:
        raise CaptureError("values of the host cannot be sent while a stream is captured")

    def refuse_reading(name: str) -> None:
        raise CaptureError(f"{name} brings values to the host")

    with ExitStack() as stack:
        for name in _SENDING:
            stack.enter_context(mock.patch.object(torch, name, refuse))
        stack.enter_context(_Allowed(registered))
        stack.enter_context(_Methods(refuse_reading))
        yield
    if seeds != [each.initial_seed() for each in registered]:
        raise CaptureError("a generator was seeded while a stream was captured")
