from __future__ import annotations

import hashlib
import json

import numpy as np

from hushpore import Volume, __version__
from hushpore.base.events import StageTime, Timing
from hushpore.base.record import make_record
from hushpore.pores.settings import PoreSettings


def test_a_record_says_what_was_done_to_what_and_is_plain_json() -> None:
    scan = Volume(np.arange(24).reshape(2, 3, 4), spacing=2, unit="um", notes=["slice 3 missing"])
    timing = Timing({"distance": StageTime(2, 1.5, 1.0)})
    record = make_record("pores", scan, PoreSettings(h=1.0), "CPU", timing, ["merged"])
    assert json.loads(json.dumps(record)) == record
    assert record["hushpore"] == __version__
    assert record["settings"]["h"] == 1.0
    assert record["timings"] == {"distance": 1.5}
    assert record["notes"] == ["slice 3 missing", "merged"]
    assert record["input"]["shape"] == [2, 3, 4]
    assert record["versions"]["numpy"] == np.__version__


def test_the_fingerprint_is_that_of_the_values_however_they_lie_in_memory(
    rng: np.random.Generator,
) -> None:
    values = rng.integers(0, 255, (3, 4, 5), np.uint8)
    expected = hashlib.blake2b(values.tobytes(), digest_size=16).hexdigest()
    for same in (values, np.asfortranarray(values), values[::-1][::-1]):
        record = make_record("pores", Volume(same), PoreSettings(), "CPU", Timing())
        assert record["input"]["blake2b"] == expected
