"""Damaged files of every kind: an image or a clear error, in few steps, and in little memory.

What is done to them, and to which files, is in `mutations.py`.
"""

import re
import sys
import threading
import warnings
from importlib import import_module
from pathlib import Path

import pytest

from hushpore.base.errors import HushporeError

sys.path.insert(0, str(Path(__file__).parent))
mutations = import_module("mutations")

COUNTED = 60  # of DICOM and TIFF each
MOST_STEPS = 10  # times the calls of functions that an undamaged file takes
MOST_MEMORY = 150e6  # bytes beyond what reading an undamaged file took
FEW = 30  # of each kind, at most, are tried in every run
#: How many of each kind, if not so few: 2,000 in all, most of those that take a millisecond or two.
COUNTS = {
    **dict.fromkeys(("MetaImage", "raw", "NumPy", "record", "settings"), 250),
    **dict.fromkeys(("TIFF", "OME-TIFF", "NIfTI"), 150),
    **dict.fromkeys(("model", "preferences and presets"), 15),
    "DICOM": 0,
}


def peak():
    """The most memory that this process ever had, as far as the system says so."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return 0
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1])


@pytest.fixture
def counted():
    """Read what a path leads to; return how many calls of functions and returns it took."""

    def read(path):
        calls = 0

        def count(frame, event, argument):
            nonlocal calls
            calls += 1

        threading.setprofile(count)
        sys.setprofile(count)
        try:
            mutations.read_images(path)
        except HushporeError:
            pass
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return calls

    return read


def quietly(make, *args):
    """Make what pydicom warns of when it writes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(*args)


@pytest.mark.parametrize("kind", ["DICOM", "TIFF"])
def test_a_damaged_file_gives_an_image_or_a_clear_error_at_once(tmp_path, counted, kind):
    mutants = mutations.Mutants(kind, tmp_path)
    whole = [counted(mutants.written(each, each.files)) for each in mutants.originals]
    before = peak()
    found = [counted(quietly(mutants.make, seed).path) for seed in range(COUNTED)]
    assert max(found) < MOST_STEPS * max(whole)
    assert peak() - before < MOST_MEMORY


TRIED = [(kind, range(min(FEW, COUNTS.get(kind, FEW)))) for kind in mutations.KINDS]
MANY = [(kind, range(FEW, count)) for kind, count in COUNTS.items() if count > FEW]


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [each for each in TRIED if each[1]] + [pytest.param(*e, marks=pytest.mark.long) for e in MANY],
)
def test_whatever_is_damaged_is_read_or_refused_in_words(tmp_path, kind, numbers):
    if kind in ("Zarr 2", "Zarr 3"):
        pytest.importorskip("zarr")
    if kind == "NRRD":
        pytest.importorskip("nrrd")
    if kind == "NIfTI":
        pytest.importorskip("nibabel")
    mutants = mutations.Mutants(kind, tmp_path)
    outcomes = [mutants.outcome(quietly(mutants.make, number)) for number in numbers]
    # not all of them are whole, or nonsense; a model has a sum, and so any damage is refused
    assert len(set(outcomes)) > (kind not in ("record", "model"))
    assert kind != "model" or "refused" in outcomes


#: Mutants whose pixels are whole, and were once read as others without a word; by their numbers.
ONCE_SILENT = {
    # bits, the scale of a dose, slope, and pixels that were moved
    "DICOM": (113, 2627, 3280, 3403),
    "DICOM series": (218, 242),  # intercept and slope of one slice
    "DICOM, multi-frame": (2, 484, 1339),  # a dose below zero, the number of frames, no scale
    "TIFF": (1300, 1943, 1975),  # tiles, a part that lies on a text, a compression
    "OME-TIFF": (3407,),  # a part that lies on a directory
    "Zarr 2": (1216, 2932, 3232, 4914),  # shape and chunks
    "Zarr 3": (1791,),
    "NIfTI": (163, 3105),  # where the values begin, and the shape
    "NumPy": (445, 1237),  # the order of axes, and of bytes
}


@pytest.mark.parametrize("kind", ONCE_SILENT)
def test_a_header_that_contradicts_itself_or_its_file_is_told(tmp_path, kind):
    if kind.startswith("Zarr"):
        pytest.importorskip("zarr")
    if kind == "NIfTI":
        pytest.importorskip("nibabel")
    mutants = mutations.Mutants(kind, tmp_path)
    for number in ONCE_SILENT[kind]:
        mutant = quietly(mutants.make, number)
        assert mutant.whole
        assert mutants.outcome(mutant) in ("read, with a note", "refused"), number


def test_pages_that_nothing_leads_to_any_more_are_told(tmp_path):
    mutants = mutations.Mutants("TIFF", tmp_path)
    (original, *_), (expected, *_) = mutants.originals, mutants.expected
    content = bytearray(original.files["a.tif"])
    first = int.from_bytes(content[4:8], "little")
    end = first + 2 + 12 * int.from_bytes(content[first : first + 2], "little")
    content[4:8] = content[end : end + 4]  # the file begins with its second page
    (image,) = mutations.read_images(mutants.written(original, {"a.tif": bytes(content)}))
    assert image.shape[0] == expected[0].shape[0] - 1
    assert any("slices may be missing" in note for note in image.notes)
    assert expected[0].notes == ()
