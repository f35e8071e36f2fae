"""From a setting to its field: type hints for magicgui's map of types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from hushpore.viewer.forms.fields import (
    CheckField,
    ChoiceField,
    FileField,
    NumberField,
    TextField,
    WordOrNumberField,
    choices_of,
    type_of,
)
from hushpore.viewer.forms.layer_field import LayerField

if TYPE_CHECKING:
    from hushpore.base.settings import Option
    from hushpore.viewer.forms.fields import Field


def annotation_of(option: Option, field: type[Field] | None = None) -> Any:
    """Return a setting as a type hint, from which magicgui makes its field.

    It is the type of the setting, annotated as magicgui's map of types takes it: in
    ``create_widget(annotation=...)``, and in the signature of a function that is decorated with
    ``@magicgui``.

    `field`: the class of its field; else the one that suits.
    """
    words = {"widget_type": field or field_class(option), "option": option}
    return Annotated[type_of(option), _Words(words)]


def field_class(option: Option) -> type[Field]:
    """Return the class of the field that suits a setting."""
    if option.auxiliary:
        return LayerField
    if bool in option.types:
        return CheckField
    if str in option.types and float in option.types:
        return WordOrNumberField
    if choices_of(option):
        return ChoiceField
    if int in option.types or float in option.types:
        return NumberField
    return FileField if option.path else TextField


class _Words(dict[str, Any]):
    """Options of a type hint, which must have a hash."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self["option"].name)
