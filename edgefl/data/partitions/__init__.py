"""Partitions of the training images over the clients, one module per kind."""

from typing import Annotated

from pydantic import Field

from edgefl.data.partitions.by_owner import ByFile, Natural
from edgefl.data.partitions.dirichlet import Dirichlet
from edgefl.data.partitions.flwr import Flwr
from edgefl.data.partitions.iid import Iid, Quantity, Sizes, SortAndPartition
from edgefl.data.partitions.label_level import LabelLevel

AnyPartition = Annotated[
    Iid | LabelLevel | SortAndPartition | Dirichlet | Quantity | Sizes | Natural | ByFile | Flwr,
    Field(discriminator="kind"),
]
