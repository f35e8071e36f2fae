import shutil
import warnings
from pathlib import Path

import pydicom
import pytest
from pydicom.data import get_testdata_file

from hushpore.base.errors import InputError
from hushpore.io import read_all

DISC = Path(get_testdata_file("DICOMDIR")).parent


@pytest.fixture
def disc(tmp_path):
    shutil.copytree(DISC, tmp_path / "disc")
    return tmp_path / "disc"


def rename(directory, *names):
    """Let the first records that name a file name others."""
    dataset = pydicom.dcmread(directory)
    records = [r for r in dataset.DirectoryRecordSequence if "ReferencedFileID" in r]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom knows that such names are not allowed
        for record, name in zip(records, names, strict=False):
            record.ReferencedFileID = name
        dataset.save_as(directory)


def test_the_files_that_a_directory_names_are_read_and_no_others(disc):
    shutil.copy(get_testdata_file("CT_small.dcm"), disc / "98892003" / "other.dcm")
    shapes = {volume.shape for volume in read_all(disc / "DICOMDIR")}
    assert shapes == {(16, 16), (4, 16, 16), (5, 16, 16)}
    assert (128, 128) in {volume.shape for volume in read_all(disc)}


@pytest.mark.parametrize("name", [["..", "secret.dcm"], ["..", "..", "etc", "passwd"]])
def test_a_name_that_leads_out_of_the_disc_is_refused_and_said(disc, name):
    shutil.copy(get_testdata_file("CT_small.dcm"), disc.parent / "secret.dcm")
    rename(disc / "DICOMDIR", name)
    volumes = read_all(disc / "DICOMDIR")
    assert (128, 128) not in {volume.shape for volume in volumes}
    assert "outside its own folder" in volumes[0].notes[0]


def test_a_link_that_leads_out_of_the_disc_is_refused(disc):
    shutil.copy(get_testdata_file("CT_small.dcm"), disc.parent / "secret.dcm")
    (disc / "LINK").symlink_to(disc.parent / "secret.dcm")
    rename(disc / "DICOMDIR", ["LINK"])
    assert (128, 128) not in {volume.shape for volume in read_all(disc / "DICOMDIR")}


def test_files_that_are_not_there_are_named(disc):
    rename(disc / "DICOMDIR", ["GONE"])
    assert "lists 1 file that does not exist (GONE)" in read_all(disc / "DICOMDIR")[0].notes[0]


def test_a_directory_alone_is_told(tmp_path):
    shutil.copy(DISC / "DICOMDIR", tmp_path / "DICOMDIR")
    with pytest.raises(InputError, match="the images that it lists are missing"):
        read_all(tmp_path / "DICOMDIR")
