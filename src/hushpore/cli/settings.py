"""Where a command takes its settings from: flags, a settings file, a preset; and writing one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hushpore.base.errors import InputError
from hushpore.jobs import JOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hushpore.base.settings import Settings


def settings_sources(*jobs: str) -> Callable[[Any], Any]:
    """Decorate a command with ``--settings`` and ``--preset`` for the flags of some jobs.

    What they hold stands in for the defaults of flags, and a flag that is given wins.
    """

    def take(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            _stand_in(ctx, jobs, _read(str(param.name), value))
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


def _read(kind: str, value: str) -> Mapping[str, Settings]:
    if kind == "preset":
        from hushpore.runs.presets import read_preset

        return read_preset(value)
    from hushpore.runs.settings_file import read_settings

    return read_settings(value)


def _stand_in(ctx: click.Context, jobs: tuple[str, ...], found: Mapping[str, Settings]) -> None:
    if ctx.default_map:
        raise click.UsageError("Give --settings or --preset, not both.")
    if not set(jobs) & set(found):
        tables = " or ".join(f"[{job}]" for job in jobs)
        raise InputError(f"The settings hold no table {tables}, but {', '.join(found) or 'none'}.")
    ctx.default_map = {
        name: "none" if value is None else value
        for job in jobs
        if job in found
        for name, value in found[job].to_dict().items()
    }


@click.command("settings", short_help="Write all settings, explained, as a file.")
@click.option("-o", "--output", metavar="FILE", help="TOML file to write; else it is printed.")
@click.option("--preset", metavar="NAME", help="Those of a preset, not the defaults.")
@click.option("--list", "listed", is_flag=True, help="List the presets.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def settings_command(output: str | None, preset: str | None, listed: bool, overwrite: bool) -> None:
    """Write all settings with their defaults, explained, as a file for --settings."""
    from hushpore.runs.presets import list_presets, presets_folder, read_preset
    from hushpore.runs.settings_file import settings_text, write_settings

    if listed:
        names = list_presets()
        for name in names:
            click.echo(f"{name}: {', '.join(read_preset(name))}")
        click.echo(f"{len(names)} in {presets_folder()}", err=True)
        return
    chosen = (
        read_preset(preset)
        if preset
        else {job: JOBS[job].settings() for job in ("denoise", "pores")}
    )
    if output is None:
        click.echo(settings_text(chosen), nl=False)
    else:
        click.echo(f"Written: {write_settings(output, chosen, overwrite)}")
