"""Settings: one frozen dataclass per algorithm, the source of forms, flags and records.

A field made with `option` has help, unit and limits. The command line, the napari forms, the JSON
records and the documentation all use `Settings.options`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import os
import re
import reprlib
import types
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, Union, get_args, get_origin, get_type_hints

from hushpore.base.errors import InputError
from hushpore.base.formatting import is_thousands

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def flag_of(name: str) -> str:
    """Return the command-line flag of a setting.

    >>> flag_of("minimum_voxels")
    '--minimum-voxels'
    """
    return "--" + name.replace("_", "-")


@dataclass(frozen=True)
class Option:
    """Description of one setting for the front ends."""

    name: str  # identifier
    label: str  # title for a form
    help: str  # one explaining sentence
    unit: str  # physical unit
    types: tuple[type, ...]  # accepted: a subset of bool, int, float and str, or tuple (of str)
    default: Any
    choices: tuple[str, ...]  # accepted words; empty where any value of `types` is
    choice_labels: tuple[
        str, ...
    ]  # what a form calls them; empty where they are called as they are
    # inclusive limits, and a form's increment
    minimum: float | None
    maximum: float | None
    step: float | None
    optional: bool  # whether None is accepted
    none: str  # what a form shows for None, for example ``"no limit"``
    more: str  # heading under which a form folds it away; empty where it is shown at first
    # for a setting that names something that lies beside the volume (`Volume.auxiliary`), what it
    # may be: ``"labels"``, ``"image"``, ``"points"``, ``"scan"`` (another of the same thing); empty
    # for any other
    auxiliary: tuple[str, ...]
    # for a setting that is a path, of what: ``"file"``, ``"new file"`` or ``"folder"``; else empty
    path: str
    grey_value: bool  # whether a number is a grey value, of which another scan has others
    of_run: bool  # whether a value is meant for one run, so that the next begins without it
    metavar: str  # what the help of a command calls the value; empty for its kind
    flag_value: str  # value of the flag, if it takes none; empty if it takes one

    @property
    def is_of_scan(self) -> bool:
        """Whether a value is specific to one scan and useless for others."""
        return self.grey_value or bool(self.auxiliary) or self.path == "new file"

    @property
    def flag(self) -> str:
        """The command-line flag, for example ``--time-budget``."""
        return flag_of(self.name)

    @property
    def expected(self) -> str:
        """Accepted values, in words, for messages and tables."""
        parts: list[str] = []
        if self.auxiliary:
            kinds = [{"scan": "another scan"}.get(kind, kind) for kind in self.auxiliary]
            parts.append(f"the name of auxiliary data ({' or '.join(kinds)}), or empty")
        if self.choices:
            parts.append(", ".join(repr(choice) for choice in self.choices))
        elif str in self.types and not self.auxiliary:
            parts.append(f"the path of a {self.path}" if self.path else "text")
        if tuple in self.types:
            parts.append("texts")
        elif bool in self.types:
            parts.append("True or False")
        elif int in self.types or float in self.types:
            kind = "a number" if float in self.types else "a whole number"
            low, high = self.minimum, self.maximum
            if low is not None and high is not None:
                kind += f" from {_written(low)} to {_written(high)}"
            elif low is not None:
                kind += f" of at least {_written(low)}"
            elif high is not None:
                kind += f" of at most {_written(high)}"
            parts.append(kind)
        if self.optional:
            parts.append("None")
        return " or ".join(parts)

    @property
    def help_in_words(self) -> str:
        """Help text with the labels of the choices in a form."""
        text = self.help
        for choice, label in zip(self.choices, self.choice_labels, strict=False):
            text = re.sub(rf"(?:^|(?<=[.;] )){re.escape(choice)}:", f"{label}:", text)
        return text

    def in_words(self, choice: str) -> str:
        """Return the label of a choice in a form."""
        labels = dict(zip(self.choices, self.choice_labels, strict=False))
        return labels.get(choice, choice)

    def value_in_words(self, code: str) -> str:
        """Return the text in a form for a value in Python syntax."""
        word = code.strip("'")
        return {"True": "on", "False": "off", "None": "none"}.get(code, self.in_words(word))

    def named_in(self, message: str) -> str:
        """Return a message with the label and the choices of a form instead of Python names."""

        def assigned(value: str) -> str:
            return f"'{self.label}' = {self.value_in_words(value)}"

        named = self._renamed(message, f"'{self.label}'", assigned)
        if named == message:
            return message
        return re.sub(r"'(\w+)'", lambda found: f"'{self.in_words(found[1])}'", named)

    def as_flag_in(self, message: str) -> str:
        """Return a message with the command-line flag instead of Python names."""

        def assigned(value: str) -> str:
            switches = {"True": self.flag, "False": self.flag.replace("--", "--no-", 1)}
            if bool in self.types and value in switches:
                return switches[value]
            word = "none" if value == "None" else value.strip("'")
            return f"{self.flag} {word}"

        named = self._renamed(message, self.flag, assigned)
        return message if named == message else re.sub(r"\bNone\b", "none", named)

    def _renamed(self, message: str, name: str, assigned: Callable[[str], str]) -> str:
        """Return a message with another name for the setting.

        `name`: replaces the name alone. `assigned`: returns the text that replaces ``name=value``,
        given the value as Python writes it.
        """
        # a name of one word is common English, too: "method", "names"
        is_word = "_" not in self.name
        start = r"(?:^|(?<=[.;:] )|(?<=[Ss]et )|(?<=\())" if is_word else ""
        end = r"(?= must | to |: |\))" if is_word else ""
        value = r"('[^']*'|[\w.+-]*\w)"
        message = re.sub(rf"\b{self.name}={value}", lambda found: assigned(found[1]), message)
        return re.sub(rf"{start}\b{self.name}\b{end}", name, message)

    def check(self, value: Any) -> Any:
        """Return `value` converted to the type of the setting; paths become absolute.

        The word none means None, as in files and on the command line.
        Raises InputError if the value is invalid; says what is accepted.
        """
        if self.optional and (value is None or (isinstance(value, str) and value == "none")):
            return None
        if tuple in self.types:
            texts = (value,) if isinstance(value, str) else value
            if isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts):
                return tuple(texts)
        elif isinstance(value, str) and str in self.types:
            if not self.choices or value in self.choices:
                return _absolute(value) if self.path and value else value
        elif isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
            if bool in self.types:
                return bool(value)
        elif bool not in self.types and not isinstance(value, str):
            number = self._number(value)
            if number is not None:
                return number
        # Python refuses to print integers with very many digits
        is_huge = isinstance(value, int) and value.bit_length() > 1024
        got = f"one of {value.bit_length()} bits" if is_huge else reprlib.repr(value)
        raise InputError(f"{self.name} must be {self.expected}; got {got}.")

    def parse(self, text: str) -> Any:
        """Return the value for a text from a command line or form."""
        if self.optional and text.lower() == "none":
            return None
        if text in self.choices:
            return text
        if bool in self.types and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if int in self.types or float in self.types:
            try:
                return self.check(_number(text))
            except ValueError:
                raise InputError(f"{self.name} must be {self.expected}; got {text!r}.") from None
        return self.check(text)

    def _number(self, value: Any) -> int | float | None:
        """Return the value as a number within the limits of the setting, or None."""
        number: float | None = _exact(value)
        if number is None or float in self.types:
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                return None
        low = -math.inf if self.minimum is None else self.minimum
        high = math.inf if self.maximum is None else self.maximum
        # also false for NaN
        if not (low <= number <= high and abs(number) < math.inf):
            return None
        if float in self.types:
            return number
        return int(number) if int in self.types and number == int(number) else None


def option(
    default: Any,
    help: str,
    *,
    label: str = "",
    unit: str = "",
    choices: tuple[str, ...] = (),
    choice_labels: tuple[str, ...] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    step: float | None = None,
    more: str = "",
    none: str = "automatic",
    auxiliary: tuple[str, ...] = (),
    path: str = "",
    grey_value: bool = False,
    of_run: bool = False,
    metavar: str = "",
    flag_value: str = "",
) -> Any:
    """Declare one setting of a `Settings` class; see `Option` for the parameters."""
    metadata = {
        "label": label,
        "help": help,
        "unit": unit,
        "choices": choices,
        "choice_labels": choice_labels,
        "minimum": minimum,
        "maximum": maximum,
        "step": step,
        "more": more,
        "none": none,
        "auxiliary": auxiliary,
        "path": path,
        "grey_value": grey_value,
        "of_run": of_run,
        "metavar": metavar,
        "flag_value": flag_value,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Settings:
    """Base of all settings: immutable, with all values checked at creation."""

    def __post_init__(self) -> None:
        for opt in self.options():
            object.__setattr__(self, opt.name, opt.check(getattr(self, opt.name)))

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """Return all settings of this class, in display order."""
        # mypy checks the hash of an instance instead of the class
        return _options(cls)  # type: ignore[arg-type]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return settings from a mapping.

        Raises InputError for an unknown name or an invalid value.
        """
        known = [opt.name for opt in cls.options()]
        for name in values:
            if name not in known:
                raise InputError(
                    f"The setting {name!r} does not exist. Available: {', '.join(known)}."
                )
        return cls(**values)

    @classmethod
    def of_valid(cls, values: Mapping[str, Any]) -> Self:
        """Return settings from the valid values of a mapping, with defaults for the others."""
        kept: dict[str, Any] = {}
        # two passes, because a value may be valid only together with a later one
        for name in 2 * [opt.name for opt in cls.options() if opt.name in values]:
            with suppress(InputError):
                cls(**{**kept, name: values[name]})
                kept[name] = values[name]
        return cls(**kept)

    def in_words(self, name: str) -> str:
        """Return the label in a form of the choice of a setting."""
        (opt,) = (opt for opt in self.options() if opt.name == name)
        return opt.in_words(str(getattr(self, name)))

    @classmethod
    def as_in_a_form(cls, message: str) -> str:
        """Return a message with the labels and choices of a form instead of Python names.

        ``exterior='keep'`` becomes ``'Exterior air' = Count as pore``, and ``patch_size``
        becomes ``'Patch size'``. A name that is also a common word is replaced only where it is
        set to a value, stands alone in parentheses, or comes before 'must' or a colon.
        """
        for opt in cls.options():
            message = opt.named_in(message)
        return message

    @classmethod
    def as_flags(cls, message: str) -> str:
        """Return a message with command-line flags instead of Python names.

        ``exterior='keep'`` becomes ``--exterior keep``, and ``patch_size`` becomes
        ``--patch-size``; names are recognised as in `as_in_a_form`.
        """
        for opt in cls.options():
            message = opt.as_flag_in(message)
        return message

    def hints(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return hints on the consequences of values, for settings that are often set wrongly.

        `known`: properties of the volume, any of which may be missing: ``volume``, and others
        defined by the algorithms.
        Returns: short sentences by setting; a form shows them under the field.
        """
        return {}

    def unused(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return the reasons why settings have no effect with the others, by name; as `hints`."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        # `dataclasses.asdict` would deep-copy the values and take ten times as long
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def _exact(value: Any) -> int | None:
    """Return an integer of any size; None for any other value."""
    try:
        return operator.index(value)
    except TypeError:
        return None


def _number(text: str) -> int | float:
    """Return the number in a text, also with a decimal comma; an integer exactly.

    Raises ValueError for no number, or one such as 1,500, which may be 1.5 or 1500.
    """
    try:
        return int(text)
    except ValueError:
        if is_thousands(text):
            raise
        return float(text.replace(",", ".") if text.count(",") == 1 else text)


def _written(limit: float) -> str:
    return str(limit) if isinstance(limit, int) else f"{limit:g}"


def _absolute(path: str) -> str:
    """Return an absolute path, valid for workers and for later readers of the record."""
    # without access to the disk, because it is called for each letter typed
    return os.path.abspath(os.path.expanduser(path))


@functools.cache
def _options(kind: type[Settings]) -> tuple[Option, ...]:
    # cached, because each change of a form needs it, and type hints take a millisecond
    hints = get_type_hints(kind)
    return tuple(
        _describe(field.name, field.default, hints[field.name], dict(field.metadata))
        for field in dataclasses.fields(kind)
        if field.metadata
    )


def _describe(name: str, default: Any, hint: Any, metadata: dict[str, Any]) -> Option:
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    metadata["label"] = metadata["label"] or name.replace("_", " ").capitalize()
    return Option(
        name=name,
        types=tuple(get_origin(kind) or kind for kind in members if kind is not types.NoneType),
        default=default,
        optional=types.NoneType in members,
        **metadata,
    )
