"""Local training without a server, a baseline: each client trains its own model on its own data, nothing is sent."""

from edgefl.methods.fedavg import CrossEntropy, Mean
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.block_model import BlockModel


class OwnModels(CrossEntropy):
    """The task's mean loss of the batch, on a model of which clients keep all tensors."""

    evaluates_clients = True

    def adapt(self, model: BlockModel) -> BlockModel:
        own = super().adapt(model).again()
        own.keep_local(own.layout.name_of(each) for each in own.layout.entries)
        return own


METHODS["local"] = Recipe(
    summary="a baseline: each client trains alone, and nothing is sent",
    paper="none",
    objective=OwnModels,
    server=Mean(),
)
