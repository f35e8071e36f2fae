"""Commands that run jobs, built from `hushpore.jobs.JOBS`: single jobs, chains and batches."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hushpore.base.errors import InputError
from hushpore.base.events import result_text
from hushpore.base.preferences import preferred
from hushpore.cli.flags import (
    JobCommand,
    device_flag,
    in_flags,
    preference_flags,
    reading_flags,
    reading_from,
    settings_flags,
    settings_from,
    timings_flag,
    trace_flag,
)
from hushpore.cli.settings import settings_sources
from hushpore.cli.terminal import TimingRecorder, drive, echo, echo_result
from hushpore.jobs import CHAIN, JOBS, is_one_image, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hushpore.base.settings import Settings
    from hushpore.jobs import ExtraFile
    from hushpore.runs.pipeline import Written
    from hushpore.runs.scan_recipe import ScanRecipe

    Decorator = Callable[[Any], Any]

#: Exit status if figures of a scan fail their acceptance limits, or are not decided.
NOT_ACCEPTED = 3

#: Verdict of `hushpore.pores.forms.limits`, which takes time to import, on an accepted scan.
PASSED = "passed"

#: Flags on the tables of results.
_TABLES = preference_flags("csv_decimal", "workbook")

#: Flags of every command that runs jobs on one scan.
_COMMON = (
    device_flag,
    reading_flags(),
    _TABLES,
    trace_flag,
    timings_flag,
    click.option("--overwrite", is_flag=True, help="Replace an existing result."),
    click.option(
        "--json", "as_json", is_flag=True, help="Print the result as JSON, without a progress bar."
    ),
)  # fmt: skip
_CLUSTER = (
    click.option(
        "--cluster", metavar="PLACE",
        help="Run on dask.distributed workers: local:N (N processes on this machine), "
        "tcp://HOST:PORT or tls://HOST:PORT (a scheduler), or a scheduler file.",
    ),
    click.option(
        "--cluster-memory", type=float, metavar="GB",
        help="Memory limit of each process of local:N.  [default: an equal share of the free "
        "memory]",
    ),
)  # fmt: skip


def job_command(
    name: str, jobs: Sequence[str], short_help: str = "", help: str = ""
) -> click.Command:
    """Return a command that runs jobs on a scan, one after another, and writes the result.

    `jobs`: keys of `hushpore.jobs.JOBS`; for a single job the command also has the flags of its
    extra files. `short_help`, `help`: texts of the command; by default those of the first job.
    """
    kinds = [JOBS[job] for job in jobs]
    extras = kinds[0].extras if len(jobs) == 1 else ()
    short_help = short_help or kinds[0].short_help or f"{kinds[0].title}."

    def command(path: str, output: str, **flags: Any) -> None:
        _run(jobs, extras, path, output, flags)

    one_image = is_one_image(jobs)
    decorators: list[Decorator] = [
        click.argument("path"),
        click.option(
            "-o", "--output", required=True, metavar="OUT" if one_image else "DIR",
            help="TIFF or OME-Zarr (.zarr) to write." if one_image else "Folder for the results.",
        ),
        *(click.option(extra.flag, metavar="FILE", help=extra.help) for extra in extras),
        *(settings_flags(kind.settings, kind.title) for kind in kinds),
        settings_sources(*jobs),
        *(_CLUSTER if all(kind.cluster for kind in kinds) else ()),
        *_COMMON,
    ]  # fmt: skip
    text = help or kinds[0].help or short_help
    made = click.command(name, cls=JobCommand, short_help=short_help, help=text)
    return made(_decorated(command, decorators))


def train_command() -> click.Command:
    """Return the command that trains one denoising network on several scans."""

    def command(paths: tuple[str, ...], output: str, **flags: Any) -> None:
        from hushpore.runs.common_network import train_network
        from hushpore.runs.scan_recipe import ScanRecipe

        overwrite, quiet = flags["overwrite"], flags["as_json"]
        target = Path(output).expanduser()
        settings = settings_from(flags, JOBS["denoise"].settings)
        how = reading_from(flags)
        sources = [ScanRecipe.read_as(path, how) for path in paths]
        recorder = TimingRecorder(flags["timings"], flags["trace"], overwrite)
        job = train_network(sources, settings, target, device=flags["device"], overwrite=overwrite)
        result = drive(recorder.watch("denoise", job), "Train", quiet=quiet)
        recorder.show()
        if quiet:
            echo(json.dumps({"written": str(target), **result.provenance}, indent=2))
        else:
            echo_result(result.headline, result.remarks)
            echo(f"Written: {target} and {target.stem}.json")

    text = (
        "Train one denoising network on the scans SCANS, and save it as OUT (.safetensors), with "
        "its record beside it (.json). For scans of one kind of sample, from the same scanner with "
        "the same settings. Apply it to each: hushpore batch --model OUT, or denoise --model OUT."
    )
    decorators: list[Decorator] = [
        click.argument("paths", metavar="SCANS", nargs=-1, required=True),
        click.option("-o", "--output", required=True, metavar="OUT", help="Model to write."),
        settings_flags(JOBS["denoise"].settings, JOBS["denoise"].title),
        settings_sources("denoise"),
        # no table is written
        *(each for each in _COMMON if each is not _TABLES),
    ]
    short_help = "Train one denoising network on several scans."
    made = click.command("train", cls=JobCommand, short_help=short_help, help=text)
    return made(_decorated(command, decorators))


def batch_command(jobs: Sequence[str] = CHAIN, name: str = "batch") -> click.Command:
    """Return a command that runs jobs on many scans with the same settings.

    `jobs`: keys of `hushpore.jobs.JOBS`; all but the last are optional. `name`: its name.
    """
    kinds = {job: JOBS[job] for job in jobs}

    def command(
        scans: tuple[str, ...],
        output: str,
        device: str,
        n_jobs: int,
        overwrite: bool,
        groups: str,
        as_json: bool,
        one_network: bool = False,
        **flags: Any,
    ) -> None:
        from hushpore.runs.batch import GROUPS, PICTURE, run_batch

        work = run_batch(
            scans,
            output,
            {
                job: settings_from(flags, kind.settings) if flags.get(_with(job), True) else None
                for job, kind in kinds.items()
            },
            reading=reading_from(flags),
            device=device,
            jobs=n_jobs,
            overwrite=overwrite,
            groups=groups,
            one_network=one_network,
        )
        done = drive(work, "Batch", quiet=as_json)
        if as_json:
            rows = json.loads(done.table.to_json(orient="records"))
            echo(json.dumps({"written": str(done.folder), "scans": rows}, indent=2))
        else:
            for state in done.states:
                if state.state == "failed":
                    echo(f"Failed: {state.name}: {in_flags(state.message)}", err=True)
            echo(f"{done.summary}.\nWritten: {done.folder / 'summary.csv'}")
            if groups and (done.folder / GROUPS).is_file():
                echo(f"Written: {done.folder / GROUPS}, with a plot in {PICTURE}")
        if done.count("done", "skipped") < len(done.states):
            sys.exit(1)
        _require_accepted(done.table["limits"].dropna() if "limits" in done.table else ())

    one_network = click.option(
        "--one-network", is_flag=True,
        help="Train one network on the middles of all scans, and denoise each with it. For one "
        "kind of sample, scanned with the same settings.",
    )  # fmt: skip
    decorators: list[Decorator] = [
        click.argument("scans", nargs=-1, required=True),
        click.option(
            "-o", "--output", required=True, metavar="DIR", help="Folder for the results."
        ),
        *(
            click.option(
                f"--{job}/--no-{job}", _with(job), default=True, show_default=True,
                help=f"{kinds[job].title} each scan first.",
            )
            for job in jobs[:-1]
        ),
        *([one_network] if "denoise" in jobs else []),
        click.option(
            "--jobs", "n_jobs", default=1, show_default=True, metavar="N",
            type=click.IntRange(min=1),
            help="Number of scans processed in parallel, as far as memory allows.",
        ),
        *(settings_flags(kind.settings, kind.title) for kind in kinds.values()),
        settings_sources(*jobs),
        reading_flags(),
        device_flag,
        preference_flags("csv_decimal", "workbook"),
        click.option(
            "--overwrite", is_flag=True,
            help="Replace results made with other settings or from a scan that has changed since.",
        ),
        click.option(
            "--groups", default="", metavar="folder|FILE",
            help="Compare groups of scans, in groups.csv and groups.png: 'folder' groups them by "
            "their folders; a CSV file has the columns name and group.",
        ),
        click.option(
            "--json", "as_json", is_flag=True,
            help="Print the summary as JSON, without a progress bar.",
        ),
    ]  # fmt: skip
    made = click.command(
        name,
        cls=JobCommand,
        short_help=f"{JOBS[jobs[-1]].title} of many scans with the same settings.",
        help="Process all SCANS (files, folders, wildcards in quotes) with the same settings: "
        f"{', then '.join(JOBS[job].title.lower() for job in jobs)}.\n\n"
        "Writes a result folder for each scan and summary.csv for all of them. A scan that fails "
        "does not stop the others. Run again, the command skips finished scans. The exit status is "
        "1 if a scan failed, else 3 if a scan does not pass its acceptance limits.",
    )
    return made(_decorated(command, decorators))


def _require_accepted(verdicts: Iterable[str]) -> None:
    """Exit with the status `NOT_ACCEPTED` unless all scans pass their acceptance limits."""
    if not set(verdicts) <= {PASSED}:
        sys.exit(NOT_ACCEPTED)


def _with(job: str) -> str:
    """Return the parameter name of the flag that switches a step of a batch on or off."""
    return f"with_{job}"


def _decorated(command: Any, decorators: Sequence[Decorator]) -> Any:
    # in reverse, so that the help lists the first one first
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def _run(
    jobs: Sequence[str], extras: Sequence[ExtraFile], path: str, output: str, flags: dict[str, Any]
) -> None:
    from hushpore.runs.pipeline import run_pipeline
    from hushpore.runs.scan_recipe import ScanRecipe, files_of, settings_for

    overwrite, quiet = flags["overwrite"], flags["as_json"]
    source = ScanRecipe.read_as(path, reading_from(flags))
    requested = {extra: flags[extra.name] for extra in extras if flags[extra.name]}
    files = {extra: load(extra.checker)(file, overwrite) for extra, file in requested.items()}
    steps = {job: settings_for(settings_from(flags, JOBS[job].settings), path) for job in jobs}
    recorder = TimingRecorder(flags["timings"], flags["trace"], overwrite)
    others = [*files.values(), *recorder.files]
    if flags.get("cluster"):
        for extra in files:
            if extra.not_on_cluster:
                raise InputError(f"{extra.flag} {extra.not_on_cluster}")
        from hushpore.runs.result_folder import check_result_target

        inputs = [path, *files_of(steps.values())]
        target = check_result_target(output, jobs, overwrite, inputs=inputs, others=others)
        done = _run_on_cluster(steps, source, target, flags, recorder)
        if preferred("workbook").value:
            words = f"hushpore export {target} -o result.xlsx"
            echo(f"No workbook is written on a cluster. Write it with: {words}", err=True)
    else:
        work = run_pipeline(
            source,
            output,
            steps,
            device=flags["device"],
            overwrite=overwrite,
            others=others,
            watch=recorder.watch,
        )
        done = drive(work, JOBS[jobs[0]].title if len(jobs) == 1 else "Run", quiet=quiet)
    for extra, file in files.items():
        load(extra.writer)(file, done.result, done.volume, overwrite)
    recorder.show()
    if quiet:
        text = result_text(done.headline, done.remarks)
        echo(json.dumps({"written": str(done.folder), **done.provenance, **text}, indent=2))
    else:
        echo_result(done.headline, done.remarks)
        echo(f"Written: {done.folder}")
    _require_accepted([done.provenance.get("result", {}).get("limits", PASSED)])


def _run_on_cluster(
    steps: Mapping[str, Settings], source: ScanRecipe, target: Path, flags: dict[str, Any],
    recorder: TimingRecorder,
) -> Written:  # fmt: skip
    from hushpore.runs.pipeline import Written

    scan: ScanRecipe | str = source
    for job, settings in steps.items():
        kind = JOBS[job]
        is_last = job == list(steps)[-1]
        place = target if is_last else target.with_name(f"{target.name}_{kind.gives}.ome.zarr")
        work = load(kind.cluster)(
            flags["cluster"], scan, place, settings, device=flags["device"],
            memory=flags["cluster_memory"], overwrite=flags["overwrite"], trust=source.trust,
        )  # fmt: skip
        result = drive(recorder.watch(job, work), kind.title, quiet=flags["as_json"])
        if not is_last:
            echo(f"Written: {place}", err=True)
            # the denoised file holds one series, so `series` no longer applies
            scan = str(place)
    return Written(target, result.headline, result.remarks, result.provenance, result)
