"""The command ``hushpore``: its group, which turns errors into one line, and what is no job."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hushpore._version import __version__
from hushpore.base.errors import NO_MEMORY, HushporeError
from hushpore.cli.flags import JobCommand, reading_flags, timings_flag, trace_flag, trust_flag
from hushpore.cli.job_commands import batch_command, job_command
from hushpore.cli.result_commands import compare_command, export_command, rerun_command
from hushpore.cli.settings import preferences_command, settings_command
from hushpore.cli.terminal import Measured, drive, echo
from hushpore.device.memory import is_out_of_memory
from hushpore.io.registry import READERS, titles
from hushpore.jobs import BATCHES, CHAIN, JOBS

if TYPE_CHECKING:
    from hushpore.base.volume import Volume

#: Exit status of what the user can put right.
USER_ERROR = 1

#: Exit status of a mistake of hushpore: EX_SOFTWARE of sysexits.h.
OUR_ERROR = 70

#: Exit status after Ctrl+C: 128 and the number of SIGINT, as shells have it.
CANCELLED = 130


class _Commands(click.Group):
    """Turns every error into one clear line and an exit status."""

    command_class = JobCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, those of jobs among them."""
        return sorted({*super().list_commands(ctx), *JOBS, *BATCHES, "run"})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return a command; those of jobs are made when they are asked for."""
        if name in JOBS:
            return job_command(name, [name])
        if name in BATCHES:
            return batch_command(BATCHES[name], name)
        if name == "run":
            return job_command(
                name,
                CHAIN,
                "Denoise a stack, then segment and measure its pores.",
                "Denoise PATH, then segment and measure its pores.",
            )
        return super().get_command(ctx, name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            # of a pipe that nobody reads any more click says nothing
            raise
        except KeyboardInterrupt:
            # of a batch, and of a job on a cluster, results that were complete are kept
            _fail("Cancelled; nothing was left half-written.", CANCELLED)
        except HushporeError as error:
            _fail(str(error), USER_ERROR)
        except OSError as error:
            if os.environ.get("HUSHPORE_DEBUG"):
                raise
            _drop_output()
            where = error.filename or "the terminal or the file that output goes to"
            _fail(f"{error.strerror or error}: {where}.", USER_ERROR)
        except Exception as error:
            if os.environ.get("HUSHPORE_DEBUG"):
                raise
            if is_out_of_memory(error):
                _fail(NO_MEMORY, USER_ERROR)
            _fail(
                f"Unexpected {type(error).__name__}: {error} "
                "(this is a mistake of hushpore; HUSHPORE_DEBUG=1 shows where it happened)",
                OUR_ERROR,
            )


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="To begin: hushpore demo, hushpore gui --sample, or hushpore run SCAN -o result. Each "
    "command explains itself: hushpore run --help.",
)
@click.version_option(__version__, prog_name="hushpore")
def hushpore() -> None:
    """Denoise X-ray CT stacks without clean data, and count their pores."""


@hushpore.command(
    short_help="Say what is in a file or folder: stacks, sizes, oddities.",
    epilog=f"Reads {titles(READERS.values(), 'and')}.",
)
@click.argument("path", required=False)
@click.option("--series", metavar="N|NAME", help="Tell of one image stack only.")
@trust_flag
@click.option("--device", is_flag=True, help="Say what jobs would run on, and why.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def info(path: str | None, series: str | None, trust: bool, device: bool, as_json: bool) -> None:
    """Say what is in PATH: image stacks with shape, voxel size, type and oddities.

    From the headers alone. Where there are several, each has a number, which --series takes.
    """
    if path is None and not device:
        raise click.UsageError("Give a PATH, or --device.")
    found: dict[str, Any] = {}
    if device:
        from hushpore.device.backend import choose_backend

        backend = choose_backend()
        known = {"name": backend.name, "reason": backend.reason, "details": backend.details()}
        found["device"] = known
    if path is not None:
        from hushpore.io import choose, describe

        volumes = describe(path, trust=trust)
        if series is not None:
            volumes = [choose(volumes, series)]
        found["volumes"] = [_describe(volume) for volume in volumes]
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    if device:
        echo(f"{found['device']['name']} ({found['device']['reason']})")
        for line in found["device"]["details"]:
            echo(f"  - {line}")
    _list(found.get("volumes", []))


@hushpore.command("convert", short_help="Write a stack as OME-Zarr, whatever its size.")
@click.argument("path")
@click.argument("output")
@reading_flags
@click.option(
    "--memory-budget",
    type=float,
    metavar="GB",
    help="Memory that reading and writing may take; by default a quarter of what is free.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing OME-Zarr folder.")
@timings_flag
@trace_flag
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON, no bar.")
def convert_command(
    path: str,
    output: str,
    memory_budget: float | None,
    overwrite: bool,
    timings: bool,
    trace: str | None,
    as_json: bool,
    **reading: Any,
) -> None:
    """Write the stack in PATH as OME-Zarr, for what is larger than memory or goes to a cluster.

    OUTPUT is a folder, usually named .ome.zarr. Slices are read some at a time; levels of lower
    resolution are added for viewing. Killed and started again, it goes on from what was written.
    """
    from hushpore.runs.convert import converting
    from hushpore.runs.scan_recipe import ScanRecipe

    measured = Measured(timings, trace, overwrite)
    source = ScanRecipe(path, **reading)
    work = converting(path, output, source, memory_budget, overwrite, others=measured.files)
    listen = functools.partial(measured.listen, "Convert")
    done = drive(work, "Convert", quiet=as_json, listen=listen)
    measured.show()
    if as_json:
        echo(json.dumps({**dataclasses.asdict(done), "path": str(done.path)}, indent=2))
    else:
        echo(f"{done.summary}\nWritten: {done.path}")


@hushpore.command(short_help="Show the whole way on a phantom of known truth.")
@click.argument("volume", required=False)
@click.option("-o", "--output", default="demo", show_default=True, help="Folder to write.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier demo.")
@click.option("--time-budget", default=70.0, show_default=True, help="Seconds of training.")
@click.option("--device", default="auto", show_default=True, metavar="DEVICE", help="As in run.")
def demo(volume: str | None, output: str, overwrite: bool, time_budget: float, device: str) -> None:
    """Show the whole way on a phantom of known truth, or on the stack VOLUME."""
    from hushpore.cli.demo import run_demo

    run_demo(volume, Path(output), overwrite=overwrite, time_budget=time_budget, device=device)


@hushpore.command(short_help="Open napari with the widgets of hushpore.")
@click.argument("paths", nargs=-1)
@click.option("--sample", is_flag=True, help="Open the foam phantom.")
def gui(paths: tuple[str, ...], sample: bool) -> None:
    """Open napari with the stacks in PATHS and the widgets of hushpore."""
    # nothing of napari is imported before it is asked for
    import_module("hushpore.viewer.launch").open_viewer(paths, sample=sample)


for _command in (
    compare_command, export_command, preferences_command, rerun_command, settings_command,
):  # fmt: skip
    hushpore.add_command(_command)


def _list(volumes: list[dict[str, Any]]) -> None:
    """Print a line for each image stack with its notes, and last the notes of them all."""
    from hushpore.io.loading import split_notes

    shared, own = split_notes([volume["notes"] for volume in volumes])
    for number, (volume, notes) in enumerate(zip(volumes, own, strict=True), start=1):
        echo(f"{f'{number} ' * (len(volumes) > 1)}{volume['name']}: {volume['facts']}")
        for note in notes:
            echo(f"  - {note}")
    for note in shared:
        echo(f"- {note}")


def _describe(volume: Volume) -> dict[str, Any]:
    described = {
        field.name: getattr(volume, field.name)
        for field in dataclasses.fields(volume)
        if field.name not in ("data", "auxiliary")
    }
    described |= {"shape": volume.shape, "dtype": volume.dtype.name, "facts": volume.facts}
    return described


def _drop_output() -> None:
    """Let go of what cannot be written, so that it is not tried again when the program ends."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end)


def _fail(message: str, status: int) -> None:
    echo(f"hushpore: {message}", err=True)
    sys.exit(status)
