"""The partitioners of Flower's library flwr-datasets, by name."""

import contextlib
import inspect
import io
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, JsonValue

from edgefl.data.partitions.base import Partition, require_a_sample_for_each
from edgefl.data.sharding import Integers, Rng, Shards
from edgefl.errors import UserError, in_words, nearest, optional

LABEL, CLIENT, POSITION = "label", "client", "position"


class Flwr(Partition):
    """A partitioner of ``flwr_datasets.partitioner``, with its arguments (extra ``flwr-datasets``).

    It divides a table with the columns ``label`` and, if the data name them, ``client``. As in Flower's
    ``FederatedDataset``, the samples are shuffled before. If they are not given, ``num_partitions`` is the number of
    clients, ``partition_by`` is ``label``, and ``seed`` is drawn from the run's seed.
    """

    packages: ClassVar[tuple[str, ...]] = ("flwr-datasets",)
    kind: Literal["flwr"] = Field(default="flwr", description="a partitioner of the library flwr-datasets")
    partitioner: str = Field(description="its name, such as PathologicalPartitioner")
    args: dict[str, JsonValue] = Field(default={}, description="its arguments")

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def by_class(self) -> bool:  # type: ignore[override]
        """True if the partitioner divides by the column ``label``."""
        accepted = inspect.signature(self._partitioner()).parameters
        return "partition_by" in accepted and self.args.get("partition_by", LABEL) == LABEL

    @property
    def by_owner(self) -> bool:  # type: ignore[override]
        return self.args.get("partition_by") == CLIENT

    def check(self, class_sizes: Integers, clients: int) -> None:
        require_a_sample_for_each(class_sizes, clients)
        self._made(clients, 0)

    def sizes(self, class_sizes: Integers, clients: int, rng: Rng) -> Integers:
        """The sizes of :meth:`split`, which depend on the class sizes only."""
        return self.split(np.repeat(np.arange(len(class_sizes)), class_sizes), len(class_sizes), clients, rng).sizes

    def split(self, labels: Integers, classes: int, clients: int, rng: Rng, owner: Integers | None = None) -> Shards:
        # Sorted by class first: then the table's labels, and so the sizes, depend on the class sizes only.
        positions = np.argsort(labels, kind="stable")[rng.permutation(len(labels))]
        columns = {LABEL: labels[positions], POSITION: positions}
        if owner is not None:
            columns[CLIENT] = owner[positions]
        elif self.by_owner:
            raise UserError("partition flwr: partition_by: client needs data that name the client of each sample")
        partitioner = self._made(clients, int(rng.integers(2**31)))
        with self._called():
            import datasets

            partitioner.dataset = datasets.Dataset.from_dict({name: each.tolist() for name, each in columns.items()})
            found = partitioner.num_partitions
            if found >= clients:
                parts = [partitioner.load_partition(client) for client in range(clients)]
                chosen = [np.array(part.with_format("numpy")[:][POSITION], dtype=np.int64) for part in parts]
        if found < clients:
            raise UserError(f"partition flwr: {self.partitioner} makes {found} partitions, found {clients} clients")
        sizes = [len(each) for each in chosen]
        if 0 in sizes:
            raise UserError(
                f"partition flwr: {self.partitioner} gives no sample to {sizes.count(0)} of {clients} clients; "
                "expected at least one for each"
            )
        return Shards.of(np.repeat(np.arange(clients), sizes), np.concatenate(chosen), clients)

    def _partitioner(self) -> type:
        library = optional("flwr_datasets.partitioner", "flwr-datasets")
        named = {name: getattr(library, name) for name in library.__all__}
        known: dict[str, type] = {name: part for name, part in named.items() if not inspect.isabstract(part)}
        if self.partitioner not in known:
            hint = nearest(self.partitioner, known)
            raise UserError(f"partition flwr: unknown partitioner '{self.partitioner}'; {hint}")
        return known[self.partitioner]

    def _made(self, clients: int, seed: int) -> Any:
        part = self._partitioner()
        accepted = list(inspect.signature(part).parameters)
        if unknown := [name for name in self.args if name not in accepted]:
            hint = nearest(unknown[0], accepted)
            raise UserError(f"partition flwr: {self.partitioner} has no argument '{unknown[0]}'; {hint}")
        ours = {"num_partitions": clients, "partition_by": LABEL, "seed": seed}
        if self.args.get("num_partitions", clients) != clients:
            raise UserError(
                f"partition flwr: expected num_partitions to be the number of clients, {clients}, found "
                f"{self.args['num_partitions']}; leave it out"
            )
        if self.args.get("partition_by", LABEL) not in (LABEL, CLIENT):
            message = f"partition flwr: expected partition_by: label or client, found {self.args['partition_by']}"
            raise UserError(message)
        given = {name: value for name, value in ours.items() if name in accepted}
        for name, value in self.args.items():  # a list of lists is a table of numbers for the library
            given[name] = np.array(value) if isinstance(value, list) and value and isinstance(value[0], list) else value
        with self._called():
            return part(**given)

    @contextlib.contextmanager
    def _called(self) -> Iterator[None]:
        """Call the library: its errors are about the arguments, and its progress bars and warnings are not shown."""
        try:
            with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except Exception as error:
            raise UserError(f"partition flwr: {self.partitioner}: {in_words(error)}") from error
