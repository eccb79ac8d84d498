"""Data sets, partitions over clients, and the batches of a training job.

A scenario's ``data`` section is read by :func:`edgefl.learning.data.catalogue.data_set`; everything that training
reads comes from :func:`edgefl.learning.data.federated.load_federated`.
"""

from edgefl.learning.data.sizes import shard_sizes
from edgefl.learning.data.spec import DATA_SETS, DataSpec

__all__ = ["DATA_SETS", "DataSpec", "shard_sizes"]
