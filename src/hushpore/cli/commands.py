"""The command ``hushpore``: the group, its error messages, and the commands that run no job."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hushpore._version import __version__
from hushpore.base.errors import NO_MEMORY, HushporeError
from hushpore.cli.flags import (
    JobCommand,
    in_flags,
    reading_flags,
    reading_from,
    timings_flag,
    trace_flag,
)
from hushpore.cli.job_commands import batch_command, job_command, train_command
from hushpore.cli.result_commands import (
    align_command,
    compare_command,
    export_command,
    methods_command,
    plots_command,
    rerun_command,
)
from hushpore.cli.settings import preferences_command, settings_command
from hushpore.cli.terminal import TimingRecorder, drive, echo
from hushpore.device.memory import is_out_of_memory
from hushpore.io.registry import READERS, titles
from hushpore.jobs import BATCHES, CHAIN, JOBS

if TYPE_CHECKING:
    from hushpore.base.volume import Volume

#: Exit status after an error that the user can correct.
USER_ERROR = 1

#: Exit status after a bug in hushpore: EX_SOFTWARE of sysexits.h.
INTERNAL_ERROR = 70

#: Exit status after Ctrl+C: 128 plus the number of SIGINT, as in shells.
CANCELLED = 130


class _Commands(click.Group):
    """Group of all commands; reports every error as one line and an exit status."""

    command_class = JobCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, including one for each job."""
        return sorted({*super().list_commands(ctx), *JOBS, *BATCHES, "run", "train"})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Return a command; the commands of jobs are built on demand."""
        if name in JOBS:
            return job_command(name, [name])
        if name in BATCHES:
            return batch_command(BATCHES[name], name)
        if name == "train":
            return train_command()
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
            # click handles these itself, and stays silent after a closed pipe
            raise
        except KeyboardInterrupt:
            # a batch, and a job on a cluster, keep the results that were complete
            _fail("Cancelled; no incomplete files remain.", CANCELLED)
        except HushporeError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            _fail(in_flags(str(error), command), USER_ERROR)
        except OSError as error:
            if os.environ.get("HUSHPORE_DEBUG"):
                raise
            _drop_output()
            where = error.filename or "standard output"
            _fail(f"{error.strerror or error}: {where}.", USER_ERROR)
        except Exception as error:
            if os.environ.get("HUSHPORE_DEBUG"):
                raise
            if is_out_of_memory(error):
                _fail(NO_MEMORY, USER_ERROR)
            _fail(
                f"Unexpected error, {type(error).__name__}: {error}. This is a bug in hushpore; "
                "please report it with the traceback that HUSHPORE_DEBUG=1 prints.",
                INTERNAL_ERROR,
            )


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="To begin: hushpore demo, hushpore gui --sample, or hushpore run SCAN -o result. Help "
    "for a command: hushpore run --help.",
)
@click.version_option(__version__, prog_name="hushpore")
def hushpore() -> None:
    """Denoise X-ray CT stacks without clean reference data, and count and measure their pores."""


@hushpore.command(
    short_help="List the image stacks in a file or folder.",
    epilog=f"Supported formats: {titles(READERS.values(), 'and')}.",
)
@click.argument("path", required=False)
@reading_flags(
    "series", "voxel_size", "axes", "shape", "dtype", "byte_order", "offset", "crop", "bin", "trust"
)
@click.option("--device", is_flag=True, help="Show the device that jobs run on, and why.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def info(path: str | None, device: bool, as_json: bool, **flags: Any) -> None:
    """List the image stacks in PATH, with shape, voxel size, data type and problems.

    Only headers are read. If there are several stacks, they are numbered for --series.
    """
    if path is None and not device:
        raise click.UsageError("A PATH or --device is needed.")
    found: dict[str, Any] = {}
    if device:
        from hushpore.device.backend import choose_backend

        backend = choose_backend()
        found["device"] = {
            "name": backend.name,
            "reason": backend.reason,
            "details": backend.details(),
        }
    if path is not None:
        from hushpore.io import choose, describe
        from hushpore.runs.reading import Reading
        from hushpore.runs.scan_recipe import ScanRecipe

        reading = reading_from(flags)
        series, trust = reading.series, reading.trust
        if reading != Reading(series=series, trust=trust):
            volumes = [ScanRecipe.read_as(path, reading).describe()]
        else:
            volumes = describe(path, trust=trust)
            volumes = [choose(volumes, series)] if series else volumes
        found["volumes"] = [_describe(volume) for volume in volumes]
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    if device:
        echo(f"{found['device']['name']} ({found['device']['reason']})")
        for line in found["device"]["details"]:
            echo(f"  - {line}")
    _list(found.get("volumes", []))


@hushpore.command("convert", short_help="Convert a stack of any size to OME-Zarr.")
@click.argument("path")
@click.argument("output")
@reading_flags()
@click.option(
    "--memory-budget",
    type=float,
    metavar="GB",
    help="Memory limit for reading and writing.  [default: a quarter of the free memory]",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing OME-Zarr folder.")
@timings_flag
@trace_flag
@click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON, without a progress bar."
)
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
    """Convert the stack in PATH to OME-Zarr, for scans larger than memory or for a cluster.

    OUTPUT is a folder, usually named .ome.zarr. The slices are read in small groups, and lower
    resolutions are added for viewing. After an interruption the same command resumes the
    conversion.
    """
    from hushpore.runs.convert import converting

    recorder = TimingRecorder(timings, trace, overwrite)
    how = reading_from(reading)
    work = converting(path, output, how, memory_budget, overwrite, others=recorder.files)
    done = drive(recorder.watch("Convert", work), "Convert", quiet=as_json)
    recorder.show()
    if as_json:
        echo(json.dumps({**dataclasses.asdict(done), "path": str(done.path)}, indent=2))
    else:
        echo(f"{in_flags(done.summary)}\nWritten: {done.path}")


@hushpore.command(short_help="Denoise and segment a phantom with known pores.")
@click.argument("volume", required=False)
@click.option("-o", "--output", default="demo", show_default=True, help="Folder for the results.")
@click.option("--overwrite", is_flag=True, help="Replace the results of an earlier demo.")
@click.option("--time-budget", default=70.0, show_default=True, help="Training time, in seconds.")
@click.option(
    "--device", default="auto", show_default=True, metavar="DEVICE", help="As for the command run."
)
def demo(volume: str | None, output: str, overwrite: bool, time_budget: float, device: str) -> None:
    """Denoise and segment a phantom with known pores, or the stack VOLUME.

    For the phantom the result is compared with the true pores.
    """
    from hushpore.cli.demo import run_demo

    run_demo(volume, Path(output), overwrite=overwrite, time_budget=time_budget, device=device)


@hushpore.command(short_help="Open napari with the hushpore widgets.")
@click.argument("paths", nargs=-1)
@click.option("--sample", is_flag=True, help="Open the foam phantom.")
def gui(paths: tuple[str, ...], sample: bool) -> None:
    """Open napari with the stacks in PATHS and the hushpore widgets."""
    # other commands must not import napari
    import_module("hushpore.viewer.launch").open_viewer(paths, sample=sample)


for _command in (
    align_command, compare_command, export_command, methods_command, plots_command,
    preferences_command, rerun_command, settings_command,
):  # fmt: skip
    hushpore.add_command(_command)


def _list(volumes: list[dict[str, Any]]) -> None:
    """Print each image stack with its notes, then the notes that all stacks share."""
    from hushpore.io.loading import split_notes

    shared, own = split_notes([volume["notes"] for volume in volumes])
    for number, (volume, notes) in enumerate(zip(volumes, own, strict=True), start=1):
        echo(f"{f'{number} ' * (len(volumes) > 1)}{volume['name']}: {volume['facts']}")
        for note in notes:
            echo(f"  - {in_flags(note)}")
    for note in shared:
        echo(f"- {in_flags(note)}")


def _describe(volume: Volume) -> dict[str, Any]:
    described = {
        field.name: getattr(volume, field.name)
        for field in dataclasses.fields(volume)
        if field.name not in ("data", "auxiliary")
    }
    described |= {"shape": volume.shape, "dtype": volume.dtype.name, "facts": volume.facts}
    return described


def _drop_output() -> None:
    """Discard output that cannot be written, so that Python does not try again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end)


def _fail(message: str, status: int) -> None:
    echo(f"hushpore: {message}", err=True)
    sys.exit(status)
