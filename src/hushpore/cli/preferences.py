"""The command that shows and changes what is preferred on this machine."""

from __future__ import annotations

import json
from typing import Any

import click
from click.core import ParameterSource

from hushpore.base.preferences import Preferences, load_preferences, preferences_file
from hushpore.cli.flags import settings_flags


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
    from hushpore.device.scratch import remove_left_over, scratch_folder, temporary_folders
    from hushpore.runs import last_used
    from hushpore.runs.preferences import in_force, reset_preferences, save_preferences

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
        last_used.forget()
    removed = remove_left_over() if clean else []
    folders = temporary_folders()
    left = [folder for folder in folders if folder.is_left_over]
    known = in_force()
    if as_json:
        there = {"folder": str(scratch_folder()), "bytes": sum(one.nbytes for one in folders)}
        there |= {"left_over": [str(one.path) for one in left]}
        there |= {"removed": [str(one.path) for one in removed]}
        found = {"file": str(preferences_file()), "preferences": known, "temporary_files": there}
        click.echo(json.dumps(found, indent=2))
        return
    for name, entry in known.items():
        value = "none" if entry["value"] in (None, "") else entry["value"]
        wins = "" if entry["variable"] in entry["reason"] else f"; {entry['variable']} would win"
        click.echo(f"{name} = {value}  ({entry['reason']}{wins})")
    if removed:
        click.echo(f"Removed: {_told(removed)}")
    click.echo(f"Temporary files, new ones in {scratch_folder()}: {_told(folders)}")
    for one in left:
        click.echo(f"  left over: {one.path} (--clean removes it)")
    click.echo(f"Kept in {preferences_file()}", err=True)


def _told(folders: list[Any]) -> str:
    if not folders:
        return "none"
    count = f"{len(folders)} {'folder' if len(folders) == 1 else 'folders'}"
    return f"{count}, {sum(folder.nbytes for folder in folders) / 1e6:,.1f} MB"
