"""Where the work runs: devices, their memory and their clocks. The sole door to CUDA."""

import os

# PyTorch's threads spin while they wait for each other. On a machine with anything else to do, a
# window to draw for instance, they then keep each other from running: benchmarks/waiting.py. Read
# when the OpenMP library is loaded, so it has no effect where PyTorch was imported before.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
