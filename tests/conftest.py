"""Fixtures for all tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def shared_data() -> Path:
    """Folder of real scans beside the checkout; tests that need it are skipped without it."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the real scans in ../shared/data, which are not part of the project")
    return folder


@pytest.fixture(autouse=True)
def preferences_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees or changes the preferences of whoever runs it."""
    monkeypatch.setenv("HUSHPORE_CONFIG", str(tmp_path / "config" / "hushpore"))
    for name in ("DEVICE", "MEMORY", "TEMPORARY_FOLDER", "SWITCHES"):
        monkeypatch.delenv(f"HUSHPORE_{name}", raising=False)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def patient() -> dict[str, str]:
    """What the headers of a scan say of a person, in words that stand nowhere else."""
    return {
        "PatientName": "Quastenflosser^Ilse",
        "PatientID": "ID-4711-X",
        "PatientBirthDate": "19010203",
        "PatientAddress": "Wiesenweg 13",
        "OtherPatientIDs": "ID-0815-Y",
        "AccessionNumber": "ACC-99",
        "InstitutionName": "Klinikum Morgenrot",
        "ReferringPhysicianName": "Doktor^Fern",
        "OperatorsName": "Nah^Olga",
        "StudyID": "STUDY-77",
    }


@pytest.fixture
def scan_of_a_patient(tmp_path: Path, patient: dict[str, str], rng: np.random.Generator) -> Path:
    """A DICOM series with some pores, whose headers name a person."""
    import pydicom

    from hushpore.base.volume import Volume
    from hushpore.io.dicom import write_series

    values = rng.normal(0, 40, (8, 32, 32)) + 1000
    for z, y, x in rng.integers(4, 28, (6, 3)) // [4, 1, 1]:
        values[z : z + 2, y : y + 4, x : x + 4] -= 1500
    (tmp_path / "scans").mkdir()
    volume = Volume(values, spacing=(1, 1, 1), unit="mm")
    folder = write_series(volume, tmp_path / "scans" / "scan", seed=1)
    for path in folder.iterdir():
        dataset = pydicom.dcmread(path)
        for keyword, value in patient.items():
            setattr(dataset, keyword, value)
        dataset.save_as(path)
    return folder
