"""Devices, their memory and their clocks; all use of CUDA goes through this folder."""

import os
import sys

# PyTorch's threads spin while they wait for each other. On a busy computer, for example while a
# window is drawn, they block each other by that; going to sleep at once costs time on an idle
# computer. Spinning for some microseconds is a good compromise: benchmarks/waiting.py. OpenMP reads
# this when it is loaded, so it has no effect if PyTorch was imported before.
if "OMP_WAIT_POLICY" not in os.environ:
    if sys.platform == "linux":
        # GNU's library counts the turns. With the passive policy threads do not spin at all if
        # there are more of them than cores, idle ones of other Python threads included.
        os.environ["OMP_WAIT_POLICY"] = "ACTIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
        # Intel's library would spin forever
        os.environ.setdefault("KMP_BLOCKTIME", "0")
    else:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
