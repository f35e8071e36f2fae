"""Where the work runs: devices, their memory and their clocks. The sole door to CUDA."""

import os
import sys

# PyTorch's threads spin while they wait for each other. On a machine with anything else to do, a
# window to draw for instance, they then keep each other from running. Asleep at once they lose time
# on an idle machine; after some microseconds little of either: benchmarks/waiting.py. It is read
# when the OpenMP library is loaded, so this has no effect where PyTorch was imported before.
if "OMP_WAIT_POLICY" not in os.environ:
    if sys.platform == "linux":
        # GNU's library counts the turns. Passive threads take none once there are more than
        # processors, those of another Python thread that has long done its work among them.
        os.environ["OMP_WAIT_POLICY"] = "ACTIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        # Intel's library would spin for ever
        os.environ.setdefault("KMP_BLOCKTIME", "0")
    else:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
