"""The microcontroller-class board holds the tiniest model and no larger one."""

from edgefl.cost import CostModel
from edgefl.fleet import fits, load_profile, step_seconds
from edgefl.methods.build import build_method
from edgefl.methods.local_options import LocalOptions
from edgefl.models.registry import MODELS, build_model


def step(width, batch):
    model = build_model(MODELS["cnn"](width=width), (1, 28, 28), 10)
    return CostModel(model).cost(build_method("fedavg", LocalOptions()), model.depth, batch)


def test_a_microcontroller_holds_only_the_tiniest_model():
    board = load_profile("rp2040-board")
    assert fits(board, step(width=1, batch=2).peak_memory_bytes)
    assert not fits(board, step(width=4, batch=8).peak_memory_bytes)
    assert not fits(board, step(width=16, batch=2).peak_memory_bytes)


def test_it_is_slow_even_where_a_phone_is_bound_by_its_interpreter():
    tiny = step(width=1, batch=2).operators
    assert step_seconds(load_profile("rp2040-board"), tiny) > 20 * step_seconds(load_profile("phone-mid-range"), tiny)
