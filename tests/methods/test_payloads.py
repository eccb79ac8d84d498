"""What is sent, part by part, against the papers' own accounting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefl.methods.fedadc import FedAdcPayload
from edgefl.methods.fedbr import BlocksPayload
from edgefl.methods.fedgkd import FedGkdPayload
from edgefl.methods.parts.payload import ModelSizes, Part, Payload
from edgefl.methods.scaffold import ScaffoldPayload

SIZES = ModelSizes((10, 0, 30, 60))
S = 100


def test_the_default_sends_the_model_both_ways() -> None:
    assert Payload().downlink(SIZES, 3, None, 2) == ((Part("model", S, 3),), 4, False)
    assert Payload().uplink(SIZES) == (Part("update", S, 0),)


def test_fedadc_sends_the_old_model_early_and_the_mean_delta_late() -> None:
    payload = FedAdcPayload()
    assert payload.downlink(SIZES, 0, None, None).parts == (Part("model", S, 0),)
    assert payload.downlink(SIZES, 5, None, None).parts == (Part("model", S, 4, True), Part("mean delta", S, 5))
    assert payload.downlink(SIZES, 5, None, 3).parts == (Part("model", S, 4, True), Part("mean delta", S, 5))
    for options in ({}, {"beta_g": 0.9}, {"full_to": "all"}):
        assert FedAdcPayload(**options).downlink(SIZES, 5, None, 4).parts == (Part("mean delta", S, 5),)


def test_with_different_shares_the_momentum_travels_too_unless_it_is_known_to_be_zero() -> None:
    payload = FedAdcPayload(beta_g=0.9)
    assert payload.downlink(SIZES, 1, None, None).parts == (Part("model", S, 0, True), Part("mean delta", S, 1))
    assert payload.downlink(SIZES, 2, None, None).parts == (
        Part("model", S, 1, True),
        Part("momentum", S, 1, True),
        Part("mean delta", S, 2),
    )


def test_fedbr_sends_everything_every_so_many_rounds_and_asks_for_alpha_in_between() -> None:
    payload = BlocksPayload(full_every=3)
    assert [payload.partial(t) for t in range(7)] == [False, True, True, False, True, True, False]
    assert payload.downlink(SIZES, 3, None, 2) == ((Part("model", S, 3),), 4, False)
    assert BlocksPayload(gmbs_on_full_rounds=True).partial(0)
    assert BlocksPayload(gmbs_on_full_rounds=True).downlink(SIZES, 0, 2, None).alpha == 4


@pytest.mark.parametrize("full_every", [1, 3])
@pytest.mark.parametrize("chosen", [False, True])
def test_whether_blocks_are_ever_sent_alone_is_known_before_the_first_round(full_every, chosen) -> None:
    payload = BlocksPayload(full_every=full_every, gmbs_on_full_rounds=chosen)
    assert payload.sends_blocks == any(payload.partial(t) for t in range(60))
    assert not any(kind().sends_blocks for kind in (Payload, FedAdcPayload, ScaffoldPayload))


def test_fedbr_sends_the_last_blocks_and_leaves_empty_ones_out() -> None:
    payload = BlocksPayload()
    assert payload.downlink(SIZES, 1, 1, 0) == ((Part("block 4", 60, 1),), 1, False)
    assert payload.downlink(SIZES, 1, 3, 0) == ((Part("block 3", 30, 1), Part("block 4", 60, 1)), 3, False)
    assert payload.downlink(SIZES, 1, 4, 0) == ((Part("model", S, 1),), 4, False)


def test_a_client_with_nothing_to_build_on_gets_the_whole_model_unless_it_has_the_initial_one() -> None:
    assert BlocksPayload().downlink(SIZES, 1, 2, None) == ((Part("model", S, 1),), 4, True)
    assert BlocksPayload(first_send="none").downlink(SIZES, 1, 2, None).alpha == 2
    assert not BlocksPayload().downlink(SIZES, 2, None, None).forced_full


def test_a_client_that_is_too_stale_gets_the_whole_model() -> None:
    payload = BlocksPayload(max_stale=4, full_every=100)
    assert not payload.downlink(SIZES, 9, 2, 5).forced_full
    assert payload.downlink(SIZES, 9, 2, 4).forced_full


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=12), st.data())
def test_uniform_blocks_differ_by_a_byte_at_most_and_sum_to_the_model(blocks, data) -> None:
    sizes = ModelSizes(tuple(blocks))
    uniform = sizes.uniform().block_bytes
    assert sum(uniform) == sizes.model_bytes
    assert max(uniform) - min(uniform) <= 1
    alpha = data.draw(st.integers(0, len(blocks)))
    assert sizes.last(alpha).model_bytes == sum(blocks[len(blocks) - alpha :])
    last = sizes.uniform().last(alpha).model_bytes
    assert abs(last - alpha * sizes.model_bytes / len(blocks)) < len(blocks)


@pytest.mark.parametrize(("full_every", "printed"), [(2, 145.8), (4, 135.4), (6, 132.0)])
def test_fedbr_s_traffic_with_three_uniform_blocks_is_the_paper_s_arithmetic(full_every, printed) -> None:
    """200 rounds of 10 clients, torchvision's ResNet-18 with 10 classes: 11,181,642 numbers of 4 bytes."""
    numbers = (9408 + 128, 147968, 525568, 2099712, 8393728, 5130)
    sizes = ModelSizes(tuple(4 * n for n in numbers))
    assert sizes.model_bytes == 4 * 11_181_642
    payload = BlocksPayload(full_every=full_every, block_bytes="uniform", first_send="none")
    total = 0
    for t in range(200):
        down = payload.downlink(sizes, t, 3 if payload.partial(t) else None, None)
        total += 10 * (sum(part.bytes for part in down.parts) + sum(part.bytes for part in payload.uplink(sizes)))
    assert total / 2**20 / 1024 == pytest.approx(printed, rel=0.005)


def test_fedgkd_sends_its_teacher_when_it_differs_from_the_model() -> None:
    def sizes(buffer: int, round: int) -> list[int]:
        return [part.bytes for part in FedGkdPayload(buffer=buffer).downlink(SIZES, round, None, None).parts]

    assert (sizes(5, 0), sizes(5, 3), sizes(1, 3)) == ([S], [S, S], [S])


def test_scaffold_sends_control_variates_both_ways() -> None:
    payload = ScaffoldPayload()
    assert [part.bytes for part in payload.downlink(SIZES, 0, None, None).parts] == [S]
    assert [part.name for part in payload.downlink(SIZES, 2, None, None).parts] == ["model", "control"]
    assert sum(part.bytes for part in payload.uplink(SIZES)) == 2 * S
    assert sum(part.bytes for part in ScaffoldPayload(control_upload="derived").uplink(SIZES)) == S
