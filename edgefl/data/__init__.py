"""Data sets, partitions over clients, and the batches of a training job.

:func:`edgefl.data.catalogue.data_set` reads a scenario's ``data`` section;
:func:`edgefl.data.federated.load_federated` returns all data for training.
"""

from edgefl.data.sizes import shard_sizes
from edgefl.data.spec import DATA_SETS, DataSpec

__all__ = ["DATA_SETS", "DataSpec", "shard_sizes"]
