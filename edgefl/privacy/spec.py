"""The section ``privacy`` of a scenario, and what it needs of methods and protocols and takes from them."""

from pydantic import Field

from edgefl.methods.fits import Need, Requirement
from edgefl.options import Options
from edgefl.privacy.secure_aggregation import SecureAggregation


class Privacy(Options):
    """What the server, and everyone, learns of clients and their data."""

    secure_aggregation: SecureAggregation | None = Field(None, description="the server learns only the sum; null: no")

    def parts(self) -> list[Requirement]:
        """What it needs, with the reasons."""
        found = []
        if self.secure_aggregation is not None:
            needs: set[Need] = {"server", "rounds", "whole model", "one size", "server start", "exact uplink"}
            found.append(Requirement("secure aggregation", frozenset(needs), "privacy.secure_aggregation"))
        return found

    def takes(self) -> dict[Need, str]:
        """What it takes from methods, with the reasons."""
        takes: dict[Need, str] = {}
        if self.secure_aggregation is not None:
            reason = "with privacy.secure_aggregation the server learns only their weighted mean"
            takes = {"each update": reason, "plain sum": reason}
            takes["early cohort"] = "with privacy.secure_aggregation its clients share keys when the round begins"
        return takes
