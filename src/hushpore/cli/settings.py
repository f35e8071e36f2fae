"""Settings files, presets and preferences: their flags, and the commands that show them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_count
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
from hushpore.device.memory import in_words, remove_left_over, scratch_folder, temporary_folders
from hushpore.runs import presets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hushpore.base.settings import Settings


def settings_sources(*jobs: str) -> Callable[[Any], Any]:
    """Return a decorator that adds ``--settings`` and ``--preset`` for some jobs to a command.

    Their values replace the defaults of the flags; flags given by the user take precedence.
    """

    def take(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            is_name = param.name == "preset"
            found = presets.read_preset(value) if is_name else presets.read_settings(value)
            _stand_in(ctx, jobs, found)
        return value

    def decorate(command: Any) -> Any:
        for name, metavar, help in (
            ("--preset", "NAME", "Saved settings to use; flags take precedence."),
            ("--settings", "FILE", "TOML file with settings; flags take precedence."),
        ):
            # eager: read before any flag takes its default
            command = click.option(
                name, metavar=metavar, help=help, is_eager=True, expose_value=False, callback=take
            )(command)
        return command

    return decorate


def _stand_in(ctx: click.Context, jobs: tuple[str, ...], found: Mapping[str, Settings]) -> None:
    if ctx.default_map:
        raise click.UsageError("--settings and --preset cannot be combined; use one of them.")
    if not set(jobs) & set(found):
        tables = " or ".join(f"[{job}]" for job in jobs)
        there = ", ".join(f"[{job}]" for job in found) or "no table at all"
        raise InputError(
            f"The settings need a table {tables} for this command, but contain {there}. Add that "
            "table, or choose other settings."
        )
    ctx.default_map = {}
    for job in set(jobs) & set(found):
        defaults = type(found[job])().to_dict()
        ctx.default_map |= {
            name: "none" if value is None else value
            for name, value in found[job].to_dict().items()
            # click cannot express None for a flag that is on or off
            if value != defaults[name]
        }


@click.command("settings", short_help="Write all settings, with explanations, to a file.")
@click.option("-o", "--output", metavar="FILE", help="TOML file to write.  [default: print]")
@click.option(
    "--preset", metavar="NAME", help="Write the settings of a preset instead of the defaults."
)
@click.option("--list", "listed", is_flag=True, help="List the presets.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def settings_command(output: str | None, preset: str | None, listed: bool, overwrite: bool) -> None:
    """Write all settings with their defaults and explanations, as a file for --settings."""
    if listed:
        for name in presets.shipped_presets():
            echo(f"{name}: {', '.join(presets.read_preset(name))} (included with hushpore)")
        names = presets.list_presets()
        for name in names:
            echo(f"{name}: {', '.join(presets.read_preset(name))}")
        echo(f"{readable_count(len(names), 'preset')} in {presets.presets_folder()}", err=True)
        return
    chosen = presets.read_preset(preset or presets.DEFAULT)
    if output is None:
        echo(presets.settings_text(chosen), nl=False)
    else:
        echo(f"Written: {presets.write_settings(output, chosen, overwrite)}")


@click.command("preferences", short_help="Show or change the defaults of all commands.")
@settings_flags(Preferences)
@click.option("--reset", is_flag=True, help="Reset all preferences to their defaults first.")
@click.option("--forget", is_flag=True, help="Forget the settings of the last run in napari.")
@click.option(
    "--clean", is_flag=True, help="Remove temporary files left behind by crashed programs."
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def preferences_command(
    reset: bool, forget: bool, clean: bool, as_json: bool, **flags: Any
) -> None:
    """Show the defaults of all commands and where they come from; with flags, change them.

    A flag of a command takes precedence over the environment variable, and the variable over the
    preference. Temporary files left behind by crashed programs are listed as well.
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
    preferences = in_force()
    if as_json:
        temporary = {
            "folder": str(scratch_folder()),
            "bytes": sum(one.nbytes for one in folders),
            "left_over": [str(one.path) for one in left],
            "removed": [str(one.path) for one in removed],
        }
        report = {
            "file": str(preferences_file()),
            "preferences": preferences,
            "temporary_files": temporary,
        }
        echo(json.dumps(report, indent=2))
        return
    for name, entry in preferences.items():
        value = "none" if entry["value"] in (None, "") else entry["value"]
        override = (
            "" if entry["variable"] in entry["reason"] else f"; override: {entry['variable']}"
        )
        echo(f"{name} = {value}  ({entry['reason']}{override})")
    if removed:
        echo(f"Removed: {in_words(removed)}")
    echo(f"Temporary files ({scratch_folder()}): {in_words(folders)}")
    for one in left:
        echo(f"  left behind: {one.path} (remove with --clean)")
    echo(f"Preferences file: {preferences_file()}", err=True)
