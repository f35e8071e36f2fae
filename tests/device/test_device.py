"""What importing the package alone does: it tells OpenMP how its threads shall wait."""

import json
import os
import subprocess
import sys

import pytest

SAY = """
import json, os, sys
import hushpore.device
assert "torch" not in sys.modules
print(json.dumps(dict(os.environ)))
"""


def environment(**given):
    ours = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    before = {name: value for name, value in os.environ.items() if name not in ours} | given
    said = subprocess.run([sys.executable, "-c", SAY], env=before, check=True, capture_output=True)
    after = json.loads(said.stdout)
    return {name: after[name] for name in ours if name in after}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere PyTorch's OpenMP is another one")
def test_threads_that_wait_spin_for_a_moment_whichever_openmp_it_is():
    assert environment() == {
        "OMP_WAIT_POLICY": "ACTIVE",
        "GOMP_SPINCOUNT": "1000",
        "KMP_BLOCKTIME": "0",
    }


@pytest.mark.parametrize("given", [{"OMP_WAIT_POLICY": "PASSIVE"}, {"OMP_WAIT_POLICY": "ACTIVE"}])
def test_what_the_user_has_set_stays(given):
    assert environment(**given) == given
