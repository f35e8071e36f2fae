"""The device name for all CUDA devices of this computer together."""

from __future__ import annotations

import sys
from importlib.util import find_spec

#: Device name for one worker per GPU; see `hushpore.cluster.connection`.
ALL_GPUS = "cuda:all"

#: Extra of this package that installs dask-cuda, which starts the workers.
EXTRA = "multi-gpu"

#: Error message where a single device is needed.
FROM_FILE_TO_FILE = (
    f"Device {ALL_GPUS!r} runs one worker per GPU and only works from file to file: with 'hushpore "
    "denoise', 'pores' and 'run', or with Run on in napari. Use 'cuda' for one GPU."
)


def problem_of_all_gpus() -> str:
    """Return why several GPUs cannot be used together, with the remedy; empty if they can."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if torch.version.hip:
        return "only NVIDIA GPUs are supported: use 'cuda'"
    if count < 2:
        return "there is only one GPU: use 'cuda'" if count else "no usable GPU found: use 'cpu'"
    if find_spec("dask_cuda") is not None:
        return ""
    if sys.platform != "linux":
        return "dask-cuda, which starts the workers, runs on Linux only: use 'cuda'"
    return f"dask-cuda is not installed: pip install 'hushpore[{EXTRA}]' (Linux only)"


def outlook_of_all_gpus() -> str:
    """Return a line on the use of several GPUs; empty if there is only one."""
    import torch

    count = torch.cuda.device_count()
    if count < 2:
        return ""
    problem = problem_of_all_gpus()
    return f"{ALL_GPUS}: {problem or f'one worker per GPU ({count} GPUs), from file to file'}"
