"""Partitions of the training images over the clients, one file a kind."""

from typing import Annotated

from pydantic import Field

from edgefl.learning.data.partitions.dirichlet import Dirichlet
from edgefl.learning.data.partitions.iid import Iid
from edgefl.learning.data.partitions.label_level import LabelLevel
from edgefl.learning.data.partitions.natural import Natural
from edgefl.learning.data.partitions.shards import SortAndPartition

AnyPartition = Annotated[Iid | LabelLevel | SortAndPartition | Dirichlet | Natural, Field(discriminator="kind")]
"""What ``data.partition`` may be; ``kind`` says which."""

__all__ = ["AnyPartition", "Dirichlet", "Iid", "LabelLevel", "Natural", "SortAndPartition"]
