"""The section ``privacy`` of a scenario, and what it needs of methods and protocols and takes from them."""

from pydantic import Field

from edgefl.errors import UserError
from edgefl.methods.fits import Need, Requirement
from edgefl.models.block_model import BlockModel
from edgefl.options import Options
from edgefl.privacy.differential_privacy import DifferentialPrivacy
from edgefl.privacy.secure_aggregation import SecureAggregation


class Privacy(Options):
    """What the server, and everyone, learns of clients and their data."""

    secure_aggregation: SecureAggregation | None = Field(None, description="the server learns only the sum; null: no")

    dp: DifferentialPrivacy | None = Field(None, description="differential privacy of clients or examples; null: none")

    @property
    def accounts(self) -> bool:
        """True if a run has a figure ε."""
        return self.dp is not None and self.dp.accountant != "none"

    def parts(self) -> list[Requirement]:
        """What it needs, with the reasons."""
        found = []
        if self.secure_aggregation is not None:
            needs: set[Need] = {"server", "rounds", "whole model", "one size", "server start", "exact uplink"}
            found.append(Requirement("secure aggregation", frozenset(needs), "privacy.secure_aggregation"))
        if (dp := self.dp) is not None and dp.of_clients:
            needs = {"server", "rounds", "whole model", "one size", "server start", "shared model"}
            needs |= {"exact uplink"} if dp.kind == "local" else set()
            found.append(Requirement(f"{dp.kind} differential privacy", frozenset(needs), "privacy.dp"))
        elif dp is not None:
            needs = {"whole model", "one size", "single examples"}
            found.append(Requirement("differential privacy of examples", frozenset(needs), "privacy.dp"))
        return found

    def takes(self) -> dict[Need, str]:
        """What it takes from methods, with the reasons."""
        takes: dict[Need, str] = {}
        if self.secure_aggregation is not None:
            reason = "with privacy.secure_aggregation the server learns only their weighted mean"
            takes = {"each update": reason, "plain sum": reason}
            takes["early cohort"] = "with privacy.secure_aggregation its clients share keys when the round begins"
        if self.dp is not None and self.dp.kind == "central":
            reason = (
                "with privacy.dp of kind central only the mean of updates has noise; expected kind: local or example"
            )
            takes |= {"each update": reason, "plain sum": reason}
        elif self.dp is not None and self.dp.kind == "local":
            reason = "with privacy.dp of kind local only updates have noise; expected kind: example"
            takes |= {"plain sum": reason, "plain traffic": reason}
        return takes

    def check_model(self, model: BlockModel) -> None:
        """Check that a model leaks nothing without noise, and that its examples do not depend on each other.

        Raises:
            UserError: its layers keep statistics of batches, or draw.
        """
        if self.dp is None:
            return
        if model.layout.buffer_count:
            message = "a model's running statistics have no noise; expected one without them, such as norm: group"
            raise UserError(message, field="privacy.dp")
        if not self.dp.of_clients and model.random:
            raise UserError(
                "clips gradients of single examples, and layers of this model draw", field="privacy.dp.kind"
            )
