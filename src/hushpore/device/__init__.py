"""Where the work runs: devices, their memory and their clocks. The sole door to CUDA."""

import os

# PyTorch's threads spin while they wait for each other. On a machine with anything else to do, a
# window to draw for instance, they then keep each other from running; asleep they lose a little on
# an idle machine: benchmarks/waiting.py. The policy is read when the OpenMP library is loaded, so
# this has no effect where PyTorch was imported before.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
