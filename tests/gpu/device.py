"""The device that the tests of this folder compare with the CPU: a GPU, or in a rehearsal the CPU itself."""

import os

import pytest
import torch

DEVICE = os.environ.get("EDGEFL_GPU_TESTS_ON", "cuda")
REHEARSAL = DEVICE == "cpu"

THERE_IS_NONE = pytest.mark.skipif(not (REHEARSAL or torch.cuda.is_available()), reason="there is no CUDA device here")
