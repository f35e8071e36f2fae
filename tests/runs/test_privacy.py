import json
import logging

from click.testing import CliRunner

from hushpore.base.events import result_of
from hushpore.cli.commands import hushpore
from hushpore.jobs import JOBS
from hushpore.runs.batch import TABLE, run_batch


def test_nothing_of_the_patient_enters_a_batch_its_table_or_its_logs(
    scan_of_a_patient, patient, tmp_path, caplog, capfd
):
    """Tables, images, figures, reports and records of denoising and segmenting a person's scan."""
    out = tmp_path / "results"
    quick = {"steps": 2, "patch_size": 16, "batch_size": 2, "precision": "float32"}
    with caplog.at_level(logging.DEBUG):
        batch = result_of(
            run_batch(
                str(scan_of_a_patient.parent / "*"),
                out,
                {"denoise": JOBS["denoise"].settings(**quick), "pores": JOBS["pores"].settings()},
            )
        )
    assert [state.state for state in batch.states] == ["done"]
    written = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert out / TABLE in written
    assert len(written) > 5
    said = repr(batch) + caplog.text + "".join(capfd.readouterr())
    for value in patient.values():
        assert value not in said
        assert not [path.name for path, content in written.items() if value.encode() in content]


def test_nothing_of_the_patient_is_told_by_the_command_line(scan_of_a_patient, patient, tmp_path):
    out = tmp_path / "denoised.tif"
    flags = ["--steps", "2", "--patch-size", "16", "--batch-size", "2", "-o", str(out)]
    runner = CliRunner()
    for arguments in (
        ["info", str(scan_of_a_patient)],
        ["info", str(scan_of_a_patient), "--json"],
        ["denoise", str(scan_of_a_patient), *flags],
    ):
        done = runner.invoke(hushpore, arguments)
        assert done.exit_code == 0, done.output
        for value in patient.values():
            assert value not in done.output
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("denoised*"))
    assert json.loads(next(tmp_path.glob("denoised*.json")).read_text())["job"] == "denoise"
    for value in patient.values():
        assert value.encode() not in kept
