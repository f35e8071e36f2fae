"""Where the work runs: devices, their memory and their clocks. The sole door to CUDA."""
