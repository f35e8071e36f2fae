"""Command-line flags from the settings of a job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hushpore.base.settings import Option, Settings

#: Section of the help for flags that do not belong to a job.
_OWN = "Options"

#: Wording in messages about files, and the wording with the flag (named first) that replaces it.
_FILES = (
    ("resample", "Resample the stack", "Use --resample"),
    ("axes", "axes='zyx'", "--axes zyx"),
    ("flatten", "Flatten the scan", "Flatten the scan (--flatten)"),
    ("overwrite", "allow overwriting", "use --overwrite"),
    ("series", "series=", "--series"),
    ("trust", "trust=True", "--trust"),
)
_POSITIONS = re.compile(r"\b\w+\.at\(([^)]*)\)")
#: Advice to crop, or to crop or bin, to which the flags are added.
_PART = re.compile(
    r"(?<![-\w])([Cc]rop(?: it\b| the \w+)?(?: to (?:that|the sample)\b)?"
    r"(?P<bin>,? or bin(?: it| the \w+)?(?: 2 x 2 x 2)?)?)(?=[,.:; ])(?! or bin| both)"
)

#: Flags of several commands.
device_flag = click.option(
    "--device", default="auto", show_default=True, metavar="DEVICE",
    help="Device to run on: auto, cpu, cuda (or cuda:1 and so on), "
    "or mps (Apple GPU).",
)  # fmt: skip
timings_flag = click.option("--timings", is_flag=True, help="Print the time taken by each stage.")
trust_flag = click.option(
    "--trust", is_flag=True,
    help="Also read files compressed more than 1,000:1 or with more than 100,000 frames or pages "
    "(only from a source that you trust).",
)  # fmt: skip
trace_flag = click.option(
    "--trace", metavar="FILE", help="Write a timeline (.json) for https://ui.perfetto.dev."
)


class SettingType(click.ParamType):  # type: ignore[type-arg]
    """Click type of one setting: uses the checks and error messages of the setting."""

    def __init__(self, option: Option) -> None:
        self.option = option
        self.name = option.name

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return the choices, or the kind of value."""
        if self.option.auxiliary:
            return "FILE"
        if self.option.choices:
            words = [*self.option.choices, *(["NUMBER"] if float in self.option.types else [])]
            return "[" + "|".join(words) + "]"
        return "TEXT" if str in self.option.types else "NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the checked value; fail with the accepted values otherwise."""
        try:
            found = self.option.parse(value) if isinstance(value, str) else value
        except InputError as error:
            self.fail(self.option.as_flag_in(str(error)), param, ctx)
        if not self.option.auxiliary or not found or "{name" in found:
            return found
        # a record must name the file wherever it is read
        return str(Path(found).expanduser().resolve())


class SettingOption(click.Option):
    """A flag for one setting, listed in the help under the name of its job."""

    def __init__(self, *words: Any, setting: Option, section: str, **known: Any) -> None:
        super().__init__(*words, **known)
        self.setting = setting
        self.section = section


class JobCommand(click.Command):
    """Command with its help in sections: its own flags, then each job's, common ones first."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section of flags after another."""
        sections: dict[str, list[tuple[str, str]]] = {_OWN: []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(param, "section", _OWN), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def settings_flags(settings: type[Settings], title: str = "") -> Callable[[Any], Any]:
    """Return a decorator that adds one flag per setting, listed under the title of a job."""

    def decorate(command: Any) -> Any:
        # the same order as in a form
        options = sorted(settings.options(), key=lambda option: option.more)
        for option in reversed(options):
            section = f"{title}, more" if title and option.more else title or _OWN
            command = _flag(option, section)(command)
        return command

    return decorate


#: Flags that describe values where the file does not, or does so wrongly, and select a part.
_layout_flags = (
    click.option(
        "--bin", default="", metavar="N",
        help="Average blocks of voxels, after cropping: 2, or along z,y,x: 1,2,2.",
    ),
    click.option(
        "--crop", default="", metavar="BOX",
        help="Read only a box, in voxels along z,y,x: 100:300,0:512,0:512 (ends are excluded); "
        "sample: the box around the sample; cylinder: the largest upright cylinder inside it.",
    ),
    click.option(
        "--offset", default=0, type=click.IntRange(min=0), metavar="BYTES",
        help="Header size to skip, in bytes, with --shape.",
    ),
    click.option(
        "--byte-order", default="", type=click.Choice(["", "little", "big"]), metavar="ORDER",
        help="Byte order, little or big (endian), with --shape.  [default: little]",
    ),
    click.option(
        "--dtype", default="", metavar="TYPE",
        help="Data type, with --shape: uint8, uint16, int16, float32.  [default: guessed from the "
        "file size]",
    ),
    click.option(
        "--shape", default="", metavar="Z,Y,X",
        help="Shape of a raw file without header, in voxels along z,y,x: 400,512,512.",
    ),
    click.option(
        "--axes", default="", metavar="AXES",
        help="Axes of the image, if wrong in the file: zyx for slices labelled as frames (tyx).",
    ),
)  # fmt: skip


def layout_flags(command: Any) -> Any:
    """Add the flags that describe values where the file does not, and those that select a part."""
    for decorator in _layout_flags:
        command = decorator(command)
    return command


def layout_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Pick the flags of `layout_flags` and ``--flatten``, as fields of a `ScanRecipe`."""
    names = ("axes", "shape", "dtype", "byte_order", "offset", "crop", "bin")
    found = {name: flags[name] for name in names}
    if flags.get("flatten"):
        found["flatten"] = "dark" if flags.get("pores_are") == "bright" else "bright"
    return found


def reading_flags(command: Any) -> Any:
    """Add the flags for reading a scan (`hushpore.runs.scan_recipe.ScanRecipe`)."""
    for decorator in (
        trust_flag,
        click.option(
            "--voxel-size", default="", metavar="SIZE",
            help="Voxel size, if the file gives none or a wrong one: 15.4um, or as z,y,x: "
            "5,0.49,0.49mm.",
        ),
        click.option(
            "--flatten", flag_value="bright", default="",
            help="Remove drift and cupping (beam hardening) of the grey value of the solid, after "
            "cropping and binning.",
        ),
        layout_flags,
        click.option(
            "--at", multiple=True, metavar="AXIS=N",
            help="Position on a time or channel axis, for example --at t=0; repeat for more axes. "
            "In a batch, --at all gives a result and a row for each position.",
        ),
        click.option(
            "--resample", is_flag=True,
            help="Interpolate unevenly spaced or missing slices to an even spacing first.",
        ),
        click.option(
            "--series", default="", metavar="N|NAME",
            help="Image stack to use, by its number or name in the output of info.  [default: the "
            "largest]",
        ),
    ):  # fmt: skip
        command = decorator(command)
    return command


def in_flags(message: str, command: click.Command | None = None) -> str:
    """Return a message of the library with the flags of a command instead of Python names.

    Parameters
    ----------
    message : str
        For example ``"Use a local threshold (threshold='sauvola')."``.
    command : click.Command, optional
        By default the command that is running; without one the message stays as it is.

    Returns
    -------
    str
        For example ``"Use a local threshold (--threshold sauvola)."``.
    """
    if command is None:
        context = click.get_current_context(silent=True)
        if context is None:
            return message
        command = context.command
    for param in command.params:
        if isinstance(param, SettingOption):
            message = param.setting.as_flag_in(message)
    names = {param.name for param in command.params}
    for name, wording, with_flag in _FILES:
        if name in names:
            message = message.replace(wording, with_flag)
    if "crop" in names:
        message = _PART.sub(_part_flags, message)
    return _POSITIONS.sub(_position_flags, message) if "at" in names else message


def _part_flags(found: re.Match[str]) -> str:
    return f"{found[0]} (--crop sample{', --bin 2' if found['bin'] else ''})"


def _position_flags(found: re.Match[str]) -> str:
    return " ".join(f"--at {position}" for position in found[1].split(", "))


def settings_from(flags: Mapping[str, Any], kind: type[Settings]) -> Settings:
    """Return the settings of one job, picked from all flags of a command."""
    return kind.of({option.name: flags[option.name] for option in kind.options()})


def _flag(option: Option, section: str) -> Callable[[Any], Any]:
    help = option.help + (f" [{option.unit}]" if option.unit else "")
    if bool in option.types:
        off = option.flag.replace("--", "--no-", 1)
        names, kind = f"{option.flag}/{off}", None
    else:
        names, kind = option.flag, SettingType(option)
    return click.option(
        names, option.name, cls=SettingOption, setting=option, section=section,
        type=kind, default=option.default, show_default=option.default != "", help=help,
    )  # fmt: skip
