import pytest
from torch import nn

from edgefl.cost import CostModel
from edgefl.cost.method_cost import method_cost, stored_parameters
from edgefl.errors import UserError
from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.models.ordinary import OrdinaryModel
from edgefl.models.registry import MODELS, build_model


def method(name, **options):
    return build_method({"method": name, **options}, LocalOptions())


@pytest.fixture(scope="module")
def resnet56():
    return build_model(MODELS["resnet56"](), (3, 32, 32), 100)


@pytest.fixture(scope="module")
def costs():
    return CostModel(build_model(MODELS["cnn"](), (1, 28, 28), 10))


@pytest.mark.parametrize(
    ("name", "table", "models"), [("fedavg", 0.61, 1), ("fedalign", 0.61, 1), ("fedprox", 1.21, 2), ("moon", 2.21, 3)]
)
def test_stored_parameters_are_those_of_fedaligns_table_5(resnet56, name, table, models):
    chosen = method(name)
    model = chosen.objective.adapt(resnet56)
    stored = stored_parameters(model, chosen, model.depth)
    assert stored.stored_without_norm / 1e6 == pytest.approx(table, abs=0.0051)
    assert stored.stored == models * stored.model == models * model.layout.parameter_count


@pytest.mark.parametrize(("name", "kept"), [("fedmlb", 0), ("fedbr", 1), ("scaffold", 1)])
def test_clients_keep_whole_vectors_between_rounds(resnet56, name, kept):
    assert stored_parameters(resnet56, method(name), 5).between_rounds == kept * resnet56.layout.parameter_count


def test_received_blocks_count_alone_where_blocks_are_received(resnet56):
    stored = stored_parameters(resnet56, method("fedbr"), 1)
    assert stored.stored - stored.model == 256 * 100 + 100


def test_download_and_upload_are_the_bytes_of_the_tensors_sent(costs):
    model = costs.model.layout.block_bytes()
    fedavg = method_cost(costs, method("fedavg"), 1).as_dict()
    assert fedavg["download_bytes"] == fedavg["upload_bytes"] == sum(model) == 4 * fedavg["parameters"]
    fedadc = method_cost(costs, method("fedadc"), 1).as_dict()
    assert fedadc["download_parts"] == {"model": sum(model), "mean delta": sum(model)}
    fedbr = method_cost(costs, method("fedbr"), 1, alpha=2).as_dict()
    assert fedbr["download_parts"] == {"block 3": model[2], "block 4": model[3]}
    assert fedbr["upload_bytes"] == sum(model)


def test_alpha_is_for_methods_that_send_blocks(costs):
    with pytest.raises(UserError, match="always sends the whole model"):
        method_cost(costs, method("fedavg"), 1, alpha=2)
    with pytest.raises(UserError, match="alpha: expected 1 to the 4 blocks of the model, found 5"):
        method_cost(costs, method("fedbr"), 1, alpha=5)


def test_the_papers_factor_stands_beside_what_hybrid_paths_execute(costs):
    fedavg = method_cost(costs, method("fedavg"), 8)
    assert fedavg.paper_factor is None
    assert method_cost(costs, method("fedmlb"), 8).paper_factor == 1 + 3 * 4 / 8
    assert method_cost(costs, method("fedbr"), 8, alpha=2).paper_factor == 1 + 2 * 3 / 8


def test_copies_of_a_model_of_which_a_part_is_trained_are_as_large_as_the_part():
    spec = MODELS["torchvision"](torchvision="resnet18", trainable=["fc"])
    costs = CostModel(build_model(spec, (3, 32, 32), 10))
    whole = sum(each.numel() for each in costs.model.parameters())
    for name, copies, kept in (("fedavg", 0, 0), ("fedprox", 1, 0), ("scaffold", 2, 1)):
        stored = method_cost(costs, build_method(name, LocalOptions()), 2).stored
        assert (stored.model, stored.stored) == (whole, whole + copies * 5130), name
        assert stored.between_rounds == kept * 5130


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 10)
        self.second.weight = self.first.weight

    def forward(self, inputs):
        return self.head(self.second(self.first(inputs).relu()))


class TiedSpec(OrdinaryModel):
    def module(self, sample_shape, classes):
        return Tied()


def test_a_matrix_of_two_blocks_is_stored_once():
    model = build_model(TiedSpec(), (8,), 10)
    assert model.depth > 1
    stored = method_cost(CostModel(model), build_method("fedprox", LocalOptions()), 4).stored
    assert (stored.model, stored.stored) == (8 * 8 + 8 + 8 + 8 * 10 + 10, 2 * model.layout.parameter_count)
