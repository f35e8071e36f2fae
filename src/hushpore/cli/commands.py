"""The commands. Each reads, runs jobs, writes once at the end, and says one line about it."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hushpore._version import __version__
from hushpore.base.errors import HushporeError
from hushpore.cli.batch import batch_command
from hushpore.cli.cluster import (
    cluster_flags,
    denoise_there,
    denoised_beside,
    refuse_with_cluster,
    segment_there,
)
from hushpore.cli.compare import compare_command
from hushpore.cli.convert import convert_command
from hushpore.cli.export import export_command
from hushpore.cli.flags import JobCommand, reading_flags, settings_flags, settings_from
from hushpore.cli.preferences import preferences_command
from hushpore.cli.rerun import rerun_command
from hushpore.cli.settings import settings_command, settings_sources
from hushpore.cli.timings import Measured
from hushpore.jobs import JOBS, start
from hushpore.runs.auxiliary_files import attach_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.volume import Volume
    from hushpore.n2v2.result import Denoised
    from hushpore.runs.source import Source

DENOISE = JOBS["denoise"].settings
PORES = JOBS["pores"].settings
PATCHES = JOBS["patches"].settings

#: Exit status: the user can put it right; or it is a mistake of ours.
USER_ERROR, OUR_ERROR, CANCELLED = 1, 70, 130


class _Commands(click.Group):
    """Turns every error into one clear line and an exit status."""

    command_class = JobCommand

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            _fail("Cancelled; nothing was written.", CANCELLED)
        except HushporeError as error:
            _fail(str(error), USER_ERROR)
        except Exception as error:
            if os.environ.get("HUSHPORE_DEBUG"):
                raise
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


def _common(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of every command that runs jobs."""
    for decorator in (
        click.option("--json", "as_json", is_flag=True, help="Print the result as JSON, no bar."),
        click.option("--overwrite", is_flag=True, help="Replace an existing result."),
        click.option("--timings", is_flag=True, help="Print where the time went, stage by stage."),
        click.option(
            "--trace", metavar="FILE",
            help="Write a time line that https://ui.perfetto.dev opens.",
        ),
        reading_flags,
        click.option(
            "--device", default="auto", show_default=True, metavar="DEVICE",
            help="Where to run: auto, cpu, cuda, or cuda:1 and so on.",
        ),
    ):  # fmt: skip
        command = decorator(command)
    return command


@hushpore.command(short_help="Say what is in a file or folder: stacks, sizes, oddities.")
@click.argument("path", required=False)
@click.option("--series", metavar="N|NAME", help="Tell of one image stack only.")
@click.option("--device", is_flag=True, help="Say what jobs would run on, and why.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def info(path: str | None, series: str | None, device: bool, as_json: bool) -> None:
    """Say what is in PATH: image stacks with shape, voxel size, type and oddities.

    From the headers alone. Where there are several, each has a number, which --series takes.
    """
    if path is None and not device:
        raise click.UsageError("Give a PATH, or --device.")
    found: dict[str, Any] = {}
    if device:
        from hushpore.device.backend import choose_backend

        backend = choose_backend()
        found["device"] = {"name": backend.name, "reason": backend.reason}
        found["device"]["details"] = backend.details()
    if path is not None:
        from hushpore.io import choose, describe

        volumes = describe(path)
        if series is not None:
            volumes = [choose(volumes, series)]
        found["volumes"] = [_describe(volume) for volume in volumes]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    if device:
        click.echo(f"{found['device']['name']} ({found['device']['reason']})")
        for line in found["device"]["details"]:
            click.echo(f"  - {line}")
    _list(found.get("volumes", []))


@hushpore.command(short_help="Denoise a stack with N2V2, trained on the stack itself.")
@click.argument("path")
@click.option("-o", "--output", required=True, metavar="OUT", help="TIFF file to write.")
@click.option("--save-model", metavar="FILE", help="Keep the trained model (.safetensors).")
@click.option("--export-model", metavar="FILE", help="Package for the BioImage Model Zoo (.zip).")
@click.option("--picture", metavar="FILE", help="Draw what was removed, and the loss (.png).")
@settings_flags(DENOISE)
@settings_sources("denoise")
@cluster_flags
@_common
def denoise(
    path: str,
    output: str,
    save_model: str | None,
    export_model: str | None,
    picture: str | None,
    **flags: Any,
) -> None:
    """Denoise the stack in PATH with N2V2, trained on the stack itself.

    Writes a TIFF, and beside it how it was made as JSON.
    """
    from hushpore.io.results import check_provenance_target, check_target, write_image
    from hushpore.n2v2.trained import check_file_target
    from hushpore.runs.scan import provenance_of_image

    target = check_target(output, flags["overwrite"], directory=False)
    check_provenance_target(target, flags["overwrite"])
    for beside in (save_model, export_model, picture):
        if beside:
            check_file_target(beside, flags["overwrite"])
    measured = _measured(flags)
    if flags["cluster"]:
        refuse_with_cluster(export_model=export_model, picture=picture)
        cleaned = denoise_there(_scan(path, flags, measured), target, flags, measured)
        if save_model:
            cleaned.model.save(save_model, overwrite=flags["overwrite"])
        measured.show()
        _say(cleaned.summary, target, cleaned.provenance, flags["as_json"])
        return
    origin = _source(path, flags).to_dict()
    noisy = _read(path, flags, measured, flags["device"])
    result = _run("denoise", noisy, flags, measured)
    provenance = provenance_of_image(result, origin)
    written = write_image(
        target, result.volume, provenance=provenance, overwrite=flags["overwrite"]
    )
    if save_model:
        result.model.save(save_model, overwrite=flags["overwrite"])
    if export_model:
        result.model.export(export_model, noisy, overwrite=flags["overwrite"])
    if picture:
        _write_picture(picture, noisy, result, flags["overwrite"])
    measured.show()
    _say(result.summary, written, result.provenance, flags["as_json"])


@hushpore.command(short_help="Segment and measure the pores of a stack.")
@click.argument("path")
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder to write.")
@settings_flags(PORES)
@settings_sources("pores")
@cluster_flags
@_common
def pores(path: str, output: str, **flags: Any) -> None:
    """Segment and measure the pores of PATH: tables, labels.tif, report.html, result.json."""
    _segment(path, output, flags, denoise_first=False)


@hushpore.command(short_help="Denoise a stack, then segment and measure its pores.")
@click.argument("path")
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder to write.")
@settings_flags(DENOISE, PORES)
@settings_sources("denoise", "pores")
@cluster_flags
@_common
def run(path: str, output: str, **flags: Any) -> None:
    """Denoise PATH, then segment and measure its pores."""
    _segment(path, output, flags, denoise_first=True)


@hushpore.command(short_help="Sample patches as a denoiser does, to look at them.")
@click.argument("path")
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder to write.")
@click.option(
    "--save-patches", metavar="FILE", help="Keep the patches as a data set (.npz or .zarr)."
)
@settings_flags(PATCHES)
@settings_sources("patches")
@_common
def patches(path: str, output: str, save_patches: str | None, **flags: Any) -> None:
    """Sample patches of PATH as a denoiser does: contact sheet, coordinates, features."""
    from hushpore.cli.patch_files import check_data_set, write_data_set, write_patches
    from hushpore.io.results import check_target

    check_target(output, flags["overwrite"])
    data_set = check_data_set(save_patches, flags["overwrite"]) if save_patches else None
    measured = _measured(flags)
    found = _run("patches", _read(path, flags, measured), flags, measured)
    written = write_patches(Path(output), found, flags["overwrite"])
    if data_set is not None:
        write_data_set(data_set, found, flags["overwrite"])
    measured.show()
    _say(found.summary, written, found.provenance, flags["as_json"])


@hushpore.command(short_help="Show the whole way on a phantom of known truth.")
@click.argument("volume", required=False)
@click.option("-o", "--output", default="demo", show_default=True, help="Folder to write.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier demo.")
@click.option("--time-budget", default=75.0, show_default=True, help="Seconds of training.")
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
    from hushpore.cli.gui import open_viewer

    open_viewer(paths, sample=sample)


for _command in (
    batch_command, compare_command, convert_command, export_command, preferences_command,
    rerun_command, settings_command,
):  # fmt: skip
    hushpore.add_command(_command)


def _write_picture(path: str, noisy: Volume, result: Denoised, overwrite: bool) -> None:
    from hushpore.io.target import new_file
    from hushpore.n2v2.picture import denoising_picture
    from hushpore.n2v2.trained import check_file_target

    target = check_file_target(path, overwrite)
    with new_file(target, overwrite) as part:
        part.write_bytes(denoising_picture(noisy, result))


def _segment(path: str, output: str, flags: dict[str, Any], denoise_first: bool) -> None:
    from hushpore.io.results import check_target
    from hushpore.runs.folder import write_pores

    check_target(output, flags["overwrite"])
    measured = _measured(flags)
    if flags["cluster"]:
        scan = _scan(path, flags, measured)
        if denoise_first:
            clean = denoised_beside(output)
            denoise_there(scan, clean, flags, measured)
            click.echo(f"Written: {clean}", err=True)
            # of which there is one series, whatever those of the scan are called
            scan, flags = str(clean), {**flags, "series": ""}
        done = segment_there(scan, output, flags, measured)
        measured.show()
        _say(done.summary, done.folder, done.provenance, flags["as_json"])
        return
    origin = _source(path, flags).to_dict()
    before = _read(path, flags, measured, flags["device"] if denoise_first else None)
    denoised = _run("denoise", before, flags, measured) if denoise_first else None
    found = _run("pores", before if denoised is None else denoised.volume, flags, measured)
    written = write_pores(Path(output), before, denoised, found, flags["overwrite"], source=origin)
    measured.show()
    _say(found.summary, written, found.provenance, flags["as_json"])


def _run(job: str, volume: Volume, flags: dict[str, Any], measured: Measured) -> Any:
    from hushpore.cli.progress_bar import drive

    kind = JOBS[job]
    settings = settings_from(flags, kind.settings)
    work = start(job, attach_files(volume, settings), settings, flags["device"])
    listen = functools.partial(measured.listen, kind.title)
    return drive(work, kind.title, quiet=flags["as_json"], listen=listen)


def _measured(flags: dict[str, Any]) -> Measured:
    return Measured(flags["timings"], flags["trace"], flags["overwrite"])


def _source(path: str, flags: dict[str, Any]) -> Source:
    from hushpore.runs.source import Source

    return Source(path, *(flags[name] for name in ("series", "resample", "at", "voxel_size")))


def _scan(path: str, flags: dict[str, Any], measured: Measured) -> str | Volume:
    """Return what a cluster works on: the path, or what has to be made of it in memory first."""
    in_memory = flags["at"] or flags["resample"] or flags["voxel_size"]
    return _read(path, flags, measured) if in_memory else path


def _read(
    path: str, flags: dict[str, Any], measured: Measured, device: str | None = None
) -> Volume:
    """Read a scan, of which all values go to `device`, if it is given."""
    source = _source(path, flags)
    volume = measured.read(lambda: source.read(device))
    for note in volume.notes:
        click.echo(f"Note: {note}", err=True)
    return volume


def _list(volumes: list[dict[str, Any]]) -> None:
    """Print a line for each image stack with its notes, and last the notes of them all."""
    from hushpore.io.choosing import part_notes

    shared, own = part_notes([volume["notes"] for volume in volumes])
    for number, (volume, notes) in enumerate(zip(volumes, own, strict=True), start=1):
        click.echo(f"{f'{number} ' * (len(volumes) > 1)}{volume['name']}: {volume['facts']}")
        for note in notes:
            click.echo(f"  - {note}")
    for note in shared:
        click.echo(f"- {note}")


def _describe(volume: Volume) -> dict[str, Any]:
    described = {
        field.name: getattr(volume, field.name)
        for field in dataclasses.fields(volume)
        if field.name not in ("data", "auxiliary")
    }
    return {
        **described,
        "shape": volume.shape,
        "dtype": volume.dtype.name,
        "facts": volume.facts,
    }


def _say(summary: str, written: Path, provenance: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"written": str(written), **provenance}, indent=2))
    else:
        click.echo(f"{summary}\nWritten: {written}")


def _fail(message: str, status: int) -> None:
    click.echo(f"hushpore: {message}", err=True)
    sys.exit(status)
