"""Where the work runs: devices, their memory and their clocks. The sole door to CUDA."""

import os

# PyTorch's threads spin while they wait for each other. On a machine with anything else to do, a
# window to draw for instance, they then keep each other from running. Asleep at once they lose time
# on an idle machine; after some microseconds little of either: benchmarks/waiting.py. It is read
# when the OpenMP library is loaded, so this has no effect where PyTorch was imported before. The
# count is of GNU's library, PyTorch's on Linux.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
