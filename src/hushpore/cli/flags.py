"""Command-line flags from the settings of a job."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hushpore.base.errors import InputError
from hushpore.base.preferences import Preferences, variable_of
from hushpore.runs.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hushpore.base.settings import Option, Settings

#: Section of the help for flags that do not belong to a job.
_OWN = "Options"

#: Wording in messages about files, and the wording with the flag (named first) that replaces it.
_FILES = (
    ("resample", "Resample the stack", "Use --resample"),
    ("flatten", "Flatten the scan", "Flatten the scan (--flatten)"),
    ("overwrite", "allow overwriting", "use --overwrite"),
    ("series", "series=", "--series"),
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


def preference_flags(*names: str) -> Callable[[Any], Any]:
    """Return a decorator that adds flags for preferences, which hold until the command ends."""

    def decorate(command: Any) -> Any:
        for option in reversed(Preferences.options()):
            if option.name in names:
                is_switch = bool in option.types
                command = click.option(
                    option.flag, option.name, cls=SettingOption, setting=option, section=_OWN,
                    default=None, expose_value=False, callback=_prefer, help=option.help,
                    **({"flag_value": "true"} if is_switch else {"type": SettingType(option)}),
                )(command)  # fmt: skip
        return command

    return decorate


def _prefer(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Set the environment variable of a preference, which processes of a batch inherit."""
    if value is None:
        return
    variable = variable_of(str(param.name))
    before = {variable: os.environ[variable]} if variable in os.environ else {}
    os.environ[variable] = value
    ctx.call_on_close(lambda: (os.environ.pop(variable), os.environ.update(before)))


def settings_flags(settings: type[Settings], title: str = "") -> Callable[[Any], Any]:
    """Return a decorator that adds one flag per setting, listed under the title of a job."""

    def decorate(command: Any) -> Any:
        # the same order as in a form
        options = sorted(settings.options(), key=lambda option: bool(option.more))
        for option in reversed(options):
            section = f"{title}, more" if title and option.more else title or _OWN
            command = _flag(option, section)(command)
        return command

    return decorate


def reading_flags(*names: str) -> Callable[[Any], Any]:
    """Return a decorator that adds the flags of `Reading`: all, or those of some options."""

    def decorate(command: Any) -> Any:
        for option in reversed(Reading.options()):
            if not names or option.name in names:
                command = _reading_flag(option)(command)
        return command

    return decorate


def _reading_flag(option: Option) -> Callable[[Any], Any]:
    kind: dict[str, Any] = {"type": SettingType(option), "metavar": option.metavar}
    if bool in option.types:
        kind = {"is_flag": True}
    elif option.flag_value:
        kind = {"flag_value": option.flag_value}
    elif tuple in option.types:
        kind = {"multiple": True, "metavar": option.metavar}
    return click.option(
        option.flag, option.name, cls=SettingOption, setting=option, section=_OWN,
        default=option.default, help=option.help, **kind,
    )  # fmt: skip


def reading_from(flags: Mapping[str, Any]) -> Reading:
    """Return how a scan is read, picked from all flags of a command."""
    values = {opt.name: flags[opt.name] for opt in Reading.options() if opt.name in flags}
    if values.get("flatten") and flags.get("pores_are") == "bright":
        values["flatten"] = "dark"
    return Reading.of(values)


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
