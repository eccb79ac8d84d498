"""The options of local training."""

from pydantic import Field

from edgefl.methods.parts.optimizers import LocalOptimizer, PlainSgd
from edgefl.methods.parts.step_options import StepOptions


class LocalOptions(StepOptions):
    """The options of a client's local training: length, batches, and plain SGD (``training.local``)."""

    optimizer: LocalOptimizer = Field(default=PlainSgd(), description="the optimizer: a kind and its options")
