"""The pore segmentation on a GPU, with its CUDA kernels in `kernels`."""
