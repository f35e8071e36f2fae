"""All CUDA devices of this machine together, by one name."""

from __future__ import annotations

import sys
from importlib.util import find_spec

#: As a device it is a worker for each of them; see `hushpore.cluster.connection`.
ALL_GPUS = "cuda:all"

#: What brings the package that starts the workers.
EXTRA = "multi-gpu"

#: What to do where one device is asked for.
FROM_FILE_TO_FILE = (
    f"Device {ALL_GPUS!r} is a worker for each GPU, from file to file: 'hushpore denoise', 'pores' "
    "and 'run' take it, and Computer in napari. Use 'cuda' for one GPU."
)


def problem_of_all_gpus() -> str:
    """Say why they cannot be used together, and what to do; empty where they can."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if torch.version.hip:
        return "it is for NVIDIA's GPUs: use 'cuda'"
    if count < 2:
        return "there is one GPU: use 'cuda'" if count else "there is no usable GPU: use 'cpu'"
    if find_spec("dask_cuda") is not None:
        return ""
    if sys.platform != "linux":
        return "dask-cuda, which starts the workers, is for Linux only: use 'cuda'"
    return f"dask-cuda is not installed: pip install 'hushpore[{EXTRA}]' (for Linux only)"


def outlook_of_all_gpus() -> str:
    """Say in a line what they would do, where there are several; empty where there is one."""
    import torch

    count = torch.cuda.device_count()
    if count < 2:
        return ""
    problem = problem_of_all_gpus()
    return f"{ALL_GPUS}: {problem or f'a worker for each of {count} GPUs, from file to file'}"
