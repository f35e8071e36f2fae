"""Command-line flags from the settings of a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hushpore.base.settings import Option, Settings

#: Where flags stand in the help that are of no job.
_OWN = "Options"

#: Flags of several commands.
device_flag = click.option(
    "--device", default="auto", show_default=True, metavar="DEVICE",
    help="Where to run: auto, cpu, cuda, cuda:1 and so on, cuda:all (a worker for each GPU), or "
    "mps (Apple's GPU).",
)  # fmt: skip
timings_flag = click.option(
    "--timings", is_flag=True, help="Print where the time went, stage by stage."
)
trust_flag = click.option(
    "--trust", is_flag=True,
    help="Read what is compressed more than 1,000:1 or has more than 100,000 frames or pages.",
)  # fmt: skip
trace_flag = click.option(
    "--trace", metavar="FILE", help="Write a time line (.json) that https://ui.perfetto.dev opens."
)


class SettingType(click.ParamType):  # type: ignore[type-arg]
    """Reads a setting from text, with the setting's own checks and messages."""

    def __init__(self, option: Option) -> None:
        self.option = option
        self.name = option.name

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Show the choices, or what is expected."""
        if self.option.auxiliary:
            return "FILE"
        if self.option.choices:
            words = [*self.option.choices, *(["NUMBER"] if float in self.option.types else [])]
            return "[" + "|".join(words) + "]"
        return "TEXT" if str in self.option.types else "NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value, or fail with what would have been accepted."""
        try:
            found = self.option.parse(value) if isinstance(value, str) else value
        except InputError as error:
            self.fail(str(error), param, ctx)
        if not self.option.auxiliary or not found or "{name" in found:
            return found
        # a record must name the file wherever it is read
        return str(Path(found).expanduser().resolve())


class SettingOption(click.Option):
    """A flag that stands in the help under the name of its job."""

    def __init__(self, *words: Any, section: str, **known: Any) -> None:
        super().__init__(*words, **known)
        self.section = section


class JobCommand(click.Command):
    """Parts its help: what is the command's own, then each job's settings, the usual ones first."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the flags."""
        sections: dict[str, list[tuple[str, str]]] = {_OWN: []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(param, "section", _OWN), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def settings_flags(settings: type[Settings], title: str = "") -> Callable[[Any], Any]:
    """Decorate a command with one flag for each setting, in the help under the title of a job."""

    def decorate(command: Any) -> Any:
        # as in a form: what matters most first
        options = sorted(settings.options(), key=lambda option: option.more)
        for option in reversed(options):
            section = f"{title}, more" if title and option.more else title or _OWN
            command = _flag(option, section)(command)
        return command

    return decorate


def reading_flags(command: Any) -> Any:
    """Add the options that say how a scan is read (`hushpore.runs.scan_recipe.ScanRecipe`)."""
    for decorator in (
        trust_flag,
        click.option(
            "--voxel-size", default="", metavar="SIZE",
            help="Where the file says none, or a wrong one: 15.4um, or z,y,x: 5,0.49,0.49mm.",
        ),
        click.option(
            "--at", multiple=True, metavar="AXIS=N",
            help="Work on one position of a time or channel axis, for example --at t=0.",
        ),
        click.option(
            "--resample", is_flag=True,
            help="Where slices are uneven or missing, interpolate them to an even spacing first.",
        ),
        click.option(
            "--series", default="", metavar="N|NAME",
            help="Which image stack of a scan, as info lists them; else the largest.",
        ),
    ):  # fmt: skip
        command = decorator(command)
    return command


def settings_from(flags: Mapping[str, Any], kind: type[Settings]) -> Settings:
    """Pick the settings of one job out of all the flags of a command."""
    return kind.of({option.name: flags[option.name] for option in kind.options()})


def _flag(option: Option, section: str) -> Callable[[Any], Any]:
    help = option.help + (f" [{option.unit}]" if option.unit else "")
    if bool in option.types:
        off = option.flag.replace("--", "--no-", 1)
        names, kind = f"{option.flag}/{off}", None
    else:
        names, kind = option.flag, SettingType(option)
    return click.option(
        names, option.name, cls=SettingOption, section=section,
        type=kind, default=option.default, show_default=option.default != "", help=help,
    )  # fmt: skip
