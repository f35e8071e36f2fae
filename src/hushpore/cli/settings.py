"""Settings and preferences: where a command takes them from, and the commands that show them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hushpore.base.errors import InputError
from hushpore.base.preferences import (
    Preferences,
    in_force,
    load_preferences,
    preferences_file,
    reset_preferences,
    save_preferences,
)
from hushpore.cli.flags import settings_flags
from hushpore.cli.terminal import echo
from hushpore.device.scratch import (
    in_words,
    remove_left_over,
    scratch_folder,
    temporary_folders,
)
from hushpore.runs import presets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hushpore.base.settings import Settings


def settings_sources(*jobs: str) -> Callable[[Any], Any]:
    """Decorate a command with ``--settings`` and ``--preset`` for the flags of some jobs.

    What they hold stands in for the defaults of flags, and a flag that is given wins.
    """

    def take(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            is_name = param.name == "preset"
            found = presets.read_preset(value) if is_name else presets.read_settings(value)
            _stand_in(ctx, jobs, found)
        return value

    def decorate(command: Any) -> Any:
        for name, metavar, help in (
            ("--preset", "NAME", "Settings saved under a name; flags win over them."),
            ("--settings", "FILE", "Settings from a TOML file; flags win over them."),
        ):
            # eager: before any flag looks for its default
            command = click.option(
                name, metavar=metavar, help=help, is_eager=True, expose_value=False, callback=take
            )(command)
        return command

    return decorate


def _stand_in(ctx: click.Context, jobs: tuple[str, ...], found: Mapping[str, Settings]) -> None:
    if ctx.default_map:
        raise click.UsageError("Give --settings or --preset, not both.")
    if not set(jobs) & set(found):
        tables = " or ".join(f"[{job}]" for job in jobs)
        raise InputError(f"The settings hold no table {tables}, but {', '.join(found) or 'none'}.")
    ctx.default_map = {}
    for job in set(jobs) & set(found):
        defaults = type(found[job])().to_dict()
        ctx.default_map |= {
            name: "none" if value is None else value
            for name, value in found[job].to_dict().items()
            # a flag of yes and no has no word for neither
            if value != defaults[name]
        }


@click.command("settings", short_help="Write all settings, explained, as a file.")
@click.option("-o", "--output", metavar="FILE", help="TOML file to write; else it is printed.")
@click.option("--preset", metavar="NAME", help="Those of a preset, not the defaults.")
@click.option("--list", "listed", is_flag=True, help="List the presets.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def settings_command(output: str | None, preset: str | None, listed: bool, overwrite: bool) -> None:
    """Write all settings with their defaults, explained, as a file for --settings."""
    if listed:
        for name in presets.shipped_presets():
            echo(f"{name}: {', '.join(presets.read_preset(name))} (ships with hushpore)")
        names = presets.list_presets()
        for name in names:
            echo(f"{name}: {', '.join(presets.read_preset(name))}")
        echo(f"{len(names)} in {presets.presets_folder()}", err=True)
        return
    chosen = presets.read_preset(preset or presets.DEFAULT)
    if output is None:
        echo(presets.settings_text(chosen), nl=False)
    else:
        echo(f"Written: {presets.write_settings(output, chosen, overwrite)}")


@click.command("preferences", short_help="Say or change what jobs use where nothing is asked for.")
@settings_flags(Preferences)
@click.option("--reset", is_flag=True, help="Put all back to their defaults first.")
@click.option("--forget", is_flag=True, help="Forget what widgets were last run with.")
@click.option(
    "--clean", is_flag=True, help="Remove temporary files of programs that run no longer."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def preferences_command(
    reset: bool, forget: bool, clean: bool, as_json: bool, **flags: Any
) -> None:
    """Say what jobs use where nothing is asked for, and why; with flags, change it.

    A flag of a command wins over the environment variable, this over the preference. What was left
    over by programs that were killed is listed, too.
    """
    ctx = click.get_current_context()
    given = {
        name: value
        for name, value in flags.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if reset:
        reset_preferences()
    if given:
        save_preferences(Preferences.of({**load_preferences().to_dict(), **given}))
    if forget:
        presets.LAST_USED.forget()
    removed = remove_left_over() if clean else []
    folders = temporary_folders()
    left = [folder for folder in folders if folder.is_left_over]
    known = in_force()
    if as_json:
        there = {"folder": str(scratch_folder()), "bytes": sum(one.nbytes for one in folders)}
        there |= {"left_over": [str(one.path) for one in left]}
        there |= {"removed": [str(one.path) for one in removed]}
        found = {"file": str(preferences_file()), "preferences": known, "temporary_files": there}
        echo(json.dumps(found, indent=2))
        return
    for name, entry in known.items():
        value = "none" if entry["value"] in (None, "") else entry["value"]
        wins = "" if entry["variable"] in entry["reason"] else f"; {entry['variable']} would win"
        echo(f"{name} = {value}  ({entry['reason']}{wins})")
    if removed:
        echo(f"Removed: {in_words(removed)}")
    echo(f"Temporary files, new ones in {scratch_folder()}: {in_words(folders)}")
    for one in left:
        echo(f"  left over: {one.path} (--clean removes it)")
    echo(f"Kept in {preferences_file()}", err=True)
