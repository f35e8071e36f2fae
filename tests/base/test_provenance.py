from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np

from hushpore import Volume, __version__
from hushpore.base.events import Note, StageTime, Timing
from hushpore.base.provenance import make_provenance
from hushpore.base.settings import Settings, option
from hushpore.pores.settings import PoreSettings


def test_a_record_says_what_was_done_to_what_and_is_plain_json() -> None:
    scan = Volume(np.arange(24).reshape(2, 3, 4), spacing=2, unit="um", notes=["slice 3 missing"])
    stages = {"distance": StageTime(2, 1.5, 1.0)}
    timing = Timing(stages, host_memory=3_000_000_000, device_memory=500)
    provenance = make_provenance(
        "pores", scan, PoreSettings(merge_height=1.0), "CPU", timing, [Note("merged")]
    )
    assert json.loads(json.dumps(provenance)) == provenance
    assert provenance["hushpore"] == __version__
    assert provenance["settings"]["merge_height"] == 1.0
    assert provenance["timings"] == {"distance": 1.5}
    assert provenance["peak_memory"] == {"host": 3_000_000_000, "device": 500}
    assert provenance["notes"] == ["slice 3 missing", "merged"]
    assert provenance["input"]["shape"] == [2, 3, 4]
    assert provenance["versions"]["numpy"] == np.__version__


def digest_of_digests(values: np.ndarray) -> str:
    each = [hashlib.blake2b(plane.tobytes(), digest_size=16).digest() for plane in values]
    return hashlib.blake2b(b"".join(each), digest_size=16).hexdigest()


def test_the_fingerprint_is_that_of_the_values_however_they_lie_in_memory(
    rng: np.random.Generator,
) -> None:
    values = rng.integers(0, 255, (3, 4, 5), np.uint8)
    expected = digest_of_digests(values)
    for same in (values, np.asfortranarray(values), values[::-1][::-1]):
        provenance = make_provenance("pores", Volume(same), PoreSettings(), "CPU", Timing())
        assert provenance["input"]["blake2b"] == expected


@dataclass(frozen=True)
class Masked(Settings):
    mask: str = option("", "What to keep.", auxiliary=("labels",))


def test_a_record_identifies_what_settings_named_beside_the_volume() -> None:
    mask = np.eye(3, dtype=np.uint8)
    scan = Volume(np.eye(3), auxiliary={"crumb": mask, "not used": mask})
    provenance = make_provenance("pores", scan, Masked("crumb"), "CPU", Timing())
    fingerprint = digest_of_digests(mask)
    assert provenance["auxiliary"] == {
        "mask": {"name": "crumb", "shape": [3, 3], "dtype": "uint8", "blake2b": fingerprint}
    }
    assert make_provenance("pores", scan, Masked(), "CPU", Timing())["auxiliary"] == {}
