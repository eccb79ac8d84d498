import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from edgefl.errors import UserError
from edgefl.fleet import DeviceProfile, FleetGroup, NamedProfile, assign, group_counts, load_profile, resolve, value
from edgefl.validation import validated


def groups(*shares, profiles=("raspberry-pi-4", "raspberry-pi-5", "jetson-nano", "phone-flagship")):
    return [
        FleetGroup(profile=profiles[index % len(profiles)], share=share, link=f"link{index}")
        for index, share in enumerate(shares)
    ]


weights = st.lists(st.floats(0.01, 1), min_size=1, max_size=8)


@settings(max_examples=30)
@given(weights, st.integers(1, 5000))
def test_counts_are_exact_and_within_one_of_the_share(parts, clients):
    shares = [part / sum(parts) for part in parts]
    counts = group_counts(groups(*shares), clients)
    assert counts.sum() == clients
    assert np.all(np.abs(counts - np.array(shares) * clients) < 1 + 1e-6)


def test_largest_remainder_by_hand():
    # 7 clients: 3.5, 2.1, 1.4 -> 3, 2, 1 and the one left over to the largest remainder
    assert group_counts(groups(0.5, 0.3, 0.2), 7).tolist() == [4, 2, 1]


@settings(max_examples=30)
@given(weights, st.integers(1, 300), st.integers(0, 2**40))
def test_every_client_has_exactly_one_group_and_the_seed_decides_who(parts, clients, seed):
    chosen = groups(*(part / sum(parts) for part in parts))
    assignment = assign(chosen, clients, seed)
    assert np.array_equal(np.bincount(assignment.group, minlength=len(chosen)), group_counts(chosen, clients))
    assert np.array_equal(assignment.group, assign(chosen, clients, seed).group)


def test_a_client_has_the_profile_and_link_of_its_group():
    assignment = assign(groups(0.5, 0.5), 10, 0)
    for client in range(10):
        group = assignment.group[client]
        assert assignment.profile_of(client) == load_profile(("raspberry-pi-4", "raspberry-pi-5")[group])
        assert assignment.link_names()[client] == f"link{group}"


@pytest.mark.parametrize(("shares", "found"), [((0.5, 0.4), "0.9"), ((0.5, 0.5, 0.00001), "1.00001")])
def test_shares_that_do_not_sum_to_one_are_refused_with_their_sum(shares, found):
    with pytest.raises(UserError, match=f"fleet: expected shares that sum to 1, found {found}"):
        group_counts(groups(*shares), 10)


def test_counts_must_match_the_clients_and_not_mix_with_shares():
    pi, nano = (
        FleetGroup(profile=name, count=count, link="5g") for name, count in (("raspberry-pi-4", 3), ("jetson-nano", 4))
    )
    assert group_counts([pi, nano], 7).tolist() == [3, 4]
    with pytest.raises(UserError, match="counts that sum to 8 clients, found 7"):
        group_counts([pi, nano], 8)
    with pytest.raises(UserError, match="found both"):
        group_counts([pi, *groups(0.5)], 8)
    with pytest.raises(UserError, match="at least one group"):
        group_counts([], 8)


@pytest.mark.parametrize(
    ("clients", "told"),
    [
        ([[0, 1], [1, 2]], "found 1 twice"),
        ([[0, 1], [3]], "0 to 2 in one group, found 3"),
        ([[0], [2]], "found 2, without client 1"),
    ],
)
def test_clients_of_several_groups_or_of_none_are_named(clients, told):
    with pytest.raises(UserError, match=told):
        group_counts([FleetGroup(profile="raspberry-pi-4", clients=each, link="5g") for each in clients], 3)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"profile": "a", "link": "5g"}, "expected either share or count or clients, found none"),
        (
            {"profile": "a", "link": "5g", "share": 1, "count": 1},
            "expected either share or count or clients, found share and count",
        ),
        ({"profile": "a", "link": "5g", "share": 1.5}, "share: expected 1 or less, found 1.5"),
        ({"profle": "a", "share": 1, "link": "5g"}, "profle: unknown key; did you mean 'profile'?"),
        ({"profile": {"name": "x"}, "share": 1, "link": "5g"}, "profile.kind: this key is missing"),
    ],
)
def test_a_wrong_group_is_explained(data, expected):
    with pytest.raises(UserError) as caught:
        validated(FleetGroup, data, field="fleet.0")
    assert expected in str(caught.value)
    assert "fleet.0" in str(caught.value)


def test_a_group_resolves_to_its_complete_profile(board):
    named = resolve(FleetGroup(profile="raspberry-pi-5", share=1, link="5g"))
    assert named.profile == load_profile("raspberry-pi-5")
    inline = resolve(FleetGroup(profile=board, share=1, link="5g"))
    assert inline.profile == board
    again = FleetGroup.model_validate(named.model_dump(mode="json"))
    assert resolve(again) == named == again


def test_a_power_mode_scales_the_clocks_and_replaces_the_watts():
    board = load_profile("jetson-agx-xavier")
    made = resolve(FleetGroup(profile=board.name, share=1, link="5g", mode="30W")).profile
    mode, kind = board.modes["30W"], "convolution-wide-spatial-forward"
    assert (made.name, value(made.power.compute), made.modes) == ("jetson-agx-xavier-30W", mode.watts, {})
    assert np.divide(made.rates(kind=kind), board.rates(kind=kind)) == pytest.approx(
        (mode.gpu, mode.memory, 1 / mode.cpu, 1 / mode.cpu)
    )
    assert made.evidence("compute").factor == 2
    assert load_profile(f"{board.name}:30W") == TypeAdapter(NamedProfile).validate_python(f"{board.name}:30W") == made
    own = {"modes": {"mine": {"gpu": 0.5, "watts": "20 W"}}, "power": {"compute": "21 W"}}
    owned = resolve(FleetGroup(profile=board.name, share=1, link="5g", mode="mine", overrides=own)).profile
    assert (owned.rates()[0], owned.power.compute) == (pytest.approx(board.rates()[0] / 2), 21)
    shared = resolve(FleetGroup(profile="pc-rtx-2080ti", share=1, link="5g", mode="shared-by-4", pace=2,
                                overrides={"memory": {"training": "1 GB"}})).profile  # fmt: skip
    plain = load_profile("pc-rtx-2080ti")
    assert shared.rates()[0] == pytest.approx(plain.rates()[0] / 4 / 2)
    assert (value(shared.power.compute), value(shared.power.idle), shared.memory.training) == (80, 19, 1e9)
    assert str(shared.evidence("compute")) == "estimated, a factor of 2 to 3"
    with pytest.raises(UserError, match=r"fleet\.0\.mode: jetson-agx-xavier has no such .*; did you mean '30W'\?"):
        assign([FleetGroup(profile=board.name, share=1, link="5g", mode="3OW")], 1, 0)
    with pytest.raises(ValidationError, match="expected NAME, or NAME:MODE for a power mode"):
        TypeAdapter(NamedProfile).validate_python({"profile": board.name, "mode": "30W"})


@pytest.mark.filterwarnings("error")
def test_numbers_that_were_computed_have_their_unit():
    """Neither the rates of a slower device nor those of a small one next to an override are figures without a unit."""
    resolve(FleetGroup(profile="raspberry-pi-5", share=1, link="5g", pace=4000))
    resolve(FleetGroup(profile="rp2040-board", share=1, link="5g", overrides={"memory": {"total": "264 kB"}}))


def test_overrides_change_single_figures(board):
    overrides = {"memory": {"training": "100 MB"}, "power": {"idle": {"nominal": 2.5}}}
    group = resolve(FleetGroup(profile=board, share=1, link="5g", overrides=overrides))
    assert isinstance(group.profile, DeviceProfile)
    assert group.profile.memory.training == 1e8
    assert value(group.profile.power.idle) == 2.5
    assert group.profile.compute == board.compute
    assert group.overrides is None


def test_a_wrong_override_or_profile_names_its_place(board):
    wrong = FleetGroup(profile=board, share=1, link="5g", overrides={"memory": {"trainig": 1}})
    with pytest.raises(
        UserError, match=r"fleet\.2\.overrides\.memory\.trainig: unknown key; did you mean 'training'\?"
    ):
        resolve(wrong, field="fleet.2")
    with pytest.raises(UserError, match=r"^fleet\.0\.profile: unknown device profile 'jetson-nanoo'"):
        assign([FleetGroup(profile="jetson-nanoo", share=1, link="5g")], 3, 0)
    with pytest.raises(UserError, match=r"^fleet\.0\.profile: mine\.yaml: no such file"):
        assign([FleetGroup(profile="mine.yaml", share=1, link="5g")], 3, 0)
