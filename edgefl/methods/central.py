"""Training on a server that has the data of all clients, which federated training is compared with.

A baseline, without clients and transfers. A round is one job of ``training.local`` on the training data of all clients
together: ``epochs`` passes over them, or ``steps`` batches of them. It takes the seconds and joules of the server's
``profile``. The optimizer's state goes on from round to round, so R rounds of one epoch are a training of R epochs.
"""

from pydantic import Field

from edgefl.fleet import DeviceProfile, NamedProfile
from edgefl.methods.fedavg import CrossEntropy, Mean
from edgefl.methods.parts.payload import Downlink, ModelSizes, Part, Payload
from edgefl.methods.recipe import METHODS, Recipe
from edgefl.models.block_model import BlockModel


class OnAllData(CrossEntropy):
    """The task's mean loss of a batch of all clients' data."""

    profile: NamedProfile = Field(
        "pc-rtx-2080ti", validate_default=True, description="the server: name or path of a profile, or a whole one"
    )

    @property
    def server(self) -> DeviceProfile:
        return self.profile

    def adapt(self, model: BlockModel) -> BlockModel:
        """The same model, of which no client keeps a part."""
        whole = model.again()
        whole.keep_local(())
        return whole


class Nothing(Payload):
    """No transfer: the server has the data and the model."""

    def downlink(self, sizes: ModelSizes, round: int, alpha: int | None, held: int | None) -> Downlink:
        return Downlink((), sizes.blocks)

    def uplink(self, sizes: ModelSizes) -> tuple[Part, ...]:
        return ()


METHODS["central"] = Recipe(
    summary="a baseline: a server trains on the data of all clients, and nothing is sent",
    paper="none",
    objective=OnAllData,
    server=Mean(),
    payload=Nothing,
)
