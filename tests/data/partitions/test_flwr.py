"""Partitioners of flwr-datasets by name: what they promise, the same sizes without labels, one message each."""

import sys

import numpy as np
import pytest

from edgefl.cli import main
from edgefl.data.partitions import Flwr, LabelLevel, Natural, SortAndPartition
from edgefl.data.sets.synthetic import Synthetic
from edgefl.errors import UserError
from edgefl.experiment.inputs import software_of
from edgefl.scenario.loading import check
from edgefl.tasks.regression import Regression
from edgefl.yaml_file import dump_yaml

from ...small_runs import SMALL

CLASSES, CLIENTS = 4, 8
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(CLASSES), [1200, 1000, 800, 600]))
OWNER = np.arange(len(LABELS)) % 9


def flwr(name, **args):
    return Flwr(partitioner=name, args=args)


def test_without_the_library_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    monkeypatch.delitem(sys.modules, "flwr_datasets.partitioner", raising=False)
    with pytest.raises(
        UserError, match=r"flwr-datasets is not installed: python -m pip install -e '\.\[flwr-datasets\]'"
    ):
        flwr("IidPartitioner").check(np.array([9, 9]), 2)


class TestWithTheLibrary:
    """Needs the extra ``flwr-datasets``."""

    pytestmark = pytest.mark.extras

    @pytest.fixture(autouse=True)
    def library(self):
        """The library, which the default environment does not have."""
        return pytest.importorskip("flwr_datasets.partitioner")

    @pytest.mark.parametrize(
        "partition",
        [
            flwr("IidPartitioner"),
            flwr("LinearPartitioner"),
            flwr("SquarePartitioner"),
            flwr("ExponentialPartitioner"),
            flwr("SizePartitioner", partition_sizes=[40, 30, 20, 10, 10, 10, 10, 10]),
            flwr("DirichletPartitioner", alpha=0.5, min_partition_size=2),
            flwr("InnerDirichletPartitioner", alpha=0.5, partition_sizes=[20] * CLIENTS),
            flwr("PathologicalPartitioner", num_classes_per_partition=2, class_assignment_mode="deterministic"),
            flwr("ShardPartitioner", num_shards_per_partition=2),
            flwr("ContinuousPartitioner", strictness=0.7),
            flwr(
                "DistributionPartitioner",
                distribution_array=[[1, 2]] * CLASSES,
                num_unique_labels_per_partition=1,
                preassigned_num_samples_per_label=2,
            ),
            flwr("NaturalIdPartitioner", partition_by="client"),
            flwr("GroupedNaturalIdPartitioner", partition_by="client", group_size=1, sort_unique_ids=True),
        ],
        ids=lambda each: each.partitioner,
    )
    def test_no_sample_belongs_to_two_clients_and_a_seed_repeats(self, partition):
        def shards(seed):
            return partition.split(LABELS, CLASSES, CLIENTS, np.random.default_rng(seed), OWNER)

        first, again = shards(3), shards(3)
        assert np.array_equal(first.indices, again.indices)
        assert np.array_equal(first.offsets, again.offsets)
        assert len(set(first.indices.tolist())) == len(first.indices)
        assert first.sizes.min() >= 1
        if partition.by_owner:
            assert [set(OWNER[first.shard(client)]) for client in range(CLIENTS)] == [{k} for k in range(CLIENTS)]
        else:
            assert not np.array_equal(first.indices, shards(4).indices)
            sizes = partition.sizes(np.bincount(LABELS), CLIENTS, np.random.default_rng(3))
            assert sizes.tolist() == first.sizes.tolist()

    @pytest.mark.parametrize(
        ("partition", "by_class"),
        [
            (flwr("IidPartitioner"), False),
            (flwr("DirichletPartitioner", alpha=0.5), True),
            (flwr("PathologicalPartitioner", num_classes_per_partition=2), True),
        ],
    )
    def test_a_partitioner_by_label_needs_classes(self, partition, by_class):
        data = Synthetic(partition=partition, shape=(1, 8, 8), train=200, classes=4, clients=CLIENTS)
        assert partition.by_class == by_class
        if by_class:
            message = r"divides the samples by class, and task 'regression' has none; expected .*, found flwr"
            with pytest.raises(UserError, match=message):
                data.for_task(Regression())
        else:
            assert data.for_task(Regression()).describe().train == (200,)

    @pytest.mark.parametrize(
        ("partition", "message"),
        [
            (flwr("PathologicPartitioner"), "unknown partitioner 'PathologicPartitioner'; did you mean 'Pathological"),
            (flwr("DirichletPartitioner", alfa=0.3), "has no argument 'alfa'; did you mean 'alpha'?"),
            (flwr("DirichletPartitioner"), "missing 1 required positional argument: 'alpha'"),
            (flwr("DirichletPartitioner", alpha=-1), "Alpha values should be strictly greater than zero"),
            (flwr("IidPartitioner", num_partitions=9), "to be the number of clients, 8, found 9; leave it out"),
            (flwr("NaturalIdPartitioner", partition_by="client"), "needs data that name the client of each sample"),
            (flwr("SizePartitioner", partition_sizes=[9, 9]), "makes 2 partitions, found 8 clients"),
            (flwr("DirichletPartitioner", alpha=0.001, min_partition_size=0), "gives no sample to"),
        ],
        ids=lambda each: "" if isinstance(each, str) else each.partitioner,
    )
    def test_a_wrong_name_or_argument_is_one_message(self, partition, message):
        with pytest.raises(UserError) as refusal:
            partition.split(LABELS, CLASSES, CLIENTS, np.random.default_rng(0))
        assert str(refusal.value).startswith("partition flwr: ")
        assert message in str(refusal.value)
        assert "\n" not in str(refusal.value)

    def test_a_run_uses_it_records_the_librarys_version_and_is_verified(self, tmp_path, capsys):
        partition = {"kind": "flwr", "partitioner": "DirichletPartitioner", "args": {"alpha": 1.0}}
        scenario = SMALL | {"data": {**SMALL["data"], "partition": partition}}
        (tmp_path / "my.yaml").write_text(dump_yaml(scenario))
        assert main(["simulate", str(tmp_path / "my.yaml"), "--out", str(tmp_path / "run")]) == 0
        assert main(["verify", str(tmp_path / "run")]) == 0
        assert set(software_of(check(scenario))) == {"torch", "flwr-datasets"}
        capsys.readouterr()
        change = "data.partition.args={alfa: 1}"
        assert main(["simulate", str(tmp_path / "my.yaml"), "--out", str(tmp_path / "no"), "--set", change]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert "has no argument 'alfa'; did you mean 'alpha'?" in line
        assert not (tmp_path / "no").exists()


def test_natural_and_partitions_by_class_read_what_they_say():
    assert Natural().by_owner
    assert not flwr("IidPartitioner").by_owner
    assert [each.by_class for each in (Natural(), SortAndPartition(s=2), LabelLevel(level=2))] == [False, True, True]
