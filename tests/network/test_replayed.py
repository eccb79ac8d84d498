"""Which client follows which trace: groups, folders, pairs, and where each client starts."""

import pytest
import simpy

from edgefl.errors import UserError
from edgefl.network import ClientLinks, FlowNetwork, LinkSpec, NetworkSpec, build_topology
from edgefl.network.capacities.trace import TraceCapacity, traces_of
from edgefl.network.client_links import started

STAR = {"kind": "star", "server": {"down": "1 Gbit/s", "up": "1 Gbit/s"}}


def write(folder, **rates):
    """A file for each name with two steps, of a second each, at the rate and at twice the rate in Mbit/s."""
    for name, rate in rates.items():
        (folder / name.replace("__", ".")).write_text(f"seconds,bits_per_second\n0,{rate}e6\n1,{2 * rate}e6\n")


def capacity(file, **options):
    return {"kind": "trace", "file": str(file), "format": "csv", **options}


def link(down, up=1e6):
    return LinkSpec.model_validate({"down": down, "up": up})


def first_rates(replayed, direction, clients):
    return [replayed[direction].process(client).rates[0] / 1e6 for client in range(clients)]


def names(spec, direction="down"):
    return list(traces_of(TraceCapacity.model_validate(spec), direction))


def test_traces_are_dealt_without_repetition_by_the_seed_alone(tmp_path):
    write(tmp_path, **{f"t{number}": number for number in range(1, 6)})
    spec = link(capacity(tmp_path, shift="none"), capacity(tmp_path, shift="none"))
    dealt = {seed: first_rates(started("a", spec, 13, seed), "down", 13) for seed in range(20)}
    for rates in dealt.values():
        assert sorted(rates[:5]) == sorted(rates[5:10]) == [1, 2, 3, 4, 5]
        assert len(set(rates[10:])) == 3
    assert dealt[3] == first_rates(started("a", spec, 13, 3), "down", 13)
    assert dealt[3] == first_rates(started("a", spec, 13, 3), "up", 13)
    assert len({tuple(rates) for rates in dealt.values()}) > 15
    assert dealt[3] != first_rates(started("b", spec, 13, 3), "down", 13)


def test_a_clients_trace_does_not_depend_on_who_else_has_its_link(tmp_path):
    write(tmp_path, **{f"t{number}": number for number in range(1, 8)})
    links = {"a": link(capacity(tmp_path)), "b": link(1e6)}

    def seen(link_of_client):
        topology = build_topology(
            NetworkSpec.model_validate({"topology": STAR, "links": links}).topology, links, link_of_client
        )
        network = FlowNetwork(simpy.Environment(), topology)
        ClientLinks(links, link_of_client, seed=2).attach(network)
        return network.capacity("internet", "client/5")

    assert seen(["a"] * 9) == seen(["b"] * 5 + ["a"] + ["b"] * 3)


def test_in_order_gives_client_k_the_file_of_its_number(tmp_path):
    write(tmp_path, client10__csv=11, client2__csv=3, client0__csv=1, client1__csv=2)
    spec = capacity(tmp_path, assign="in_order", shift="none")
    assert names(spec) == ["client0.csv", "client1.csv", "client2.csv", "client10.csv"]
    assert first_rates(started("a", link(spec), 6, 0), "down", 6) == [1, 2, 3, 11, 1, 2]


def test_groups_are_in_the_order_of_their_rows_and_chosen_by_name(tmp_path):
    (tmp_path / "t.csv").write_text("t,r,run\n" + "".join(f"{t},{k},{k}\n" for k in (30, 4, 5, 31) for t in (0, 1)))
    form = {"time": "t", "rate": "r", "unit": "Mbit/s", "group": "run"}
    spec = {"kind": "trace", "file": str(tmp_path / "t.csv"), "format": form}
    assert names(spec) == ["30", "4", "5", "31"]
    assert names({**spec, "only": "3?"}) == ["30", "31"]
    assert names({**spec, "only": "5"}) == ["5"]
    with pytest.raises(UserError, match=r"t\.csv: only: expected a name of a trace, found '50'; did you mean '5'"):
        names({**spec, "only": "50"})


def test_files_of_a_folder_may_have_groups_and_files_about_it_are_not_read(tmp_path):
    form = {"time": "t", "rate": "r", "unit": "Mbit/s", "group": "run"}
    for name in ("x.csv", "y.csv"):
        (tmp_path / name).write_text("t,r,run\n0,1,a\n1,2,a\n0,1,b\n1,2,b\n")
    for name in ("README.md", "LICENSE", "UPSTREAM_README", "COPYING", ".hidden", "licence.txt"):
        (tmp_path / name).write_text("not a trace")
    (tmp_path / "inner").mkdir()
    spec = {"kind": "trace", "file": str(tmp_path), "format": form}
    assert names(spec) == ["x.csv/a", "x.csv/b", "y.csv/a", "y.csv/b"]
    assert names({**spec, "only": "y.csv/*"}) == ["y.csv/a", "y.csv/b"]


@pytest.mark.parametrize("pattern", ["client{}_{}.csv", "{}.{}", "walk-{}-{}link.log"])
def test_the_files_of_a_pair_go_to_one_client(tmp_path, pattern):
    for number in range(8):
        write(tmp_path, **{pattern.format(number, "down"): 10 + number, pattern.format(number, "up"): 1 + number})
    spec = link(capacity(tmp_path), capacity(tmp_path))
    pairs = started("a", spec, 20, seed=1)
    down, up = first_rates(pairs, "down", 20), first_rates(pairs, "up", 20)
    assert len(set(down[:8])) == 8
    assert [rate - 9 for rate in down] == up


def test_a_pair_starts_at_one_second_even_if_one_file_is_longer(tmp_path):
    (tmp_path / "a.down").write_text("seconds,bits_per_second\n0,1e6\n500,2e6\n1000,3e6\n")
    (tmp_path / "a.up").write_text("seconds,bits_per_second\n0,1e6\n400,2e6\n800,3e6\n")
    (tmp_path / "b.down").write_text("seconds,bits_per_second\n0,1e6\n10,2e6\n20,3e6\n")
    (tmp_path / "b.up").write_text("seconds,bits_per_second\n0,1e6\n10,2e6\n25,3e6\n")
    pairs = started("a", link(capacity(tmp_path), capacity(tmp_path)), 50, seed=4)
    offsets = {way: [pairs[way].process(client).offset for client in range(50)] for way in ("down", "up")}
    assert offsets["down"] == offsets["up"]
    assert len(set(offsets["down"])) == 50
    for client, offset in enumerate(offsets["down"]):
        assert offset < {1500.0: 1200.0, 30.0: 30.0}[pairs["down"].process(client).period]
    apart = started("a", link(capacity(tmp_path / "a.down"), capacity(tmp_path / "a.up")), 50, seed=4)
    assert [apart["down"].process(each).offset for each in range(50)] != [
        apart["up"].process(each).offset for each in range(50)
    ]


WRONG = {
    "a file without its partner": (["c1_down.csv", "c1_up.csv", "c2_down.csv"], "in pairs, or none.*found 'c2' alone"),
    "a partner of another name": (["c1.up", "c1.down", "c2.up", "c3.down"], "in pairs, or none.*found 'c2' alone"),
    "a file for neither": (["c1_down.csv", "c1_up.csv", "c2.csv"], "in pairs, or none.*found 'c2.csv' alone"),
    "the other direction": (["c1_up.csv", "c2_up.csv"], "files for down, found those for the other way"),
    "nothing but a licence": (["LICENSE"], "files for down, found none"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_folder_gets_one_message(tmp_path, wrong):
    files, message = WRONG[wrong]
    write(tmp_path, **dict.fromkeys(files, 1))
    with pytest.raises(UserError, match=message) as caught:
        names(capacity(tmp_path))
    assert caught.value.file == str(tmp_path)


def test_both_directions_of_one_file_have_the_same_traces(tmp_path):
    (tmp_path / "t.csv").write_text("t,down,up,run\n0,1,5,a\n1,2,6,a\n0,3,-,b\n1,4,-,b\n0,7,8,c\n1,7,8,c\n")
    form = {"time": "t", "unit": "Mbit/s", "group": "run", "missing": ["-"]}
    down = {"kind": "trace", "file": str(tmp_path / "t.csv"), "format": {**form, "rate": "down"}}
    up = {**down, "format": {**form, "rate": "up"}}
    both = started("a", link({**down, "only": "[ac]"}, {**down, "only": "[ac]"}), 9, seed=0)
    assert first_rates(both, "down", 9) == first_rates(both, "up", 9)
    few = {**up, "format": {**form, "rate": "up", "where": {"run": "a"}}}
    with pytest.raises(UserError, match="same traces for down and up, found 'b' for one of them only") as caught:
        started("a", link(down, few), 9, seed=0)
    assert caught.value.field == "up.file"


def test_a_wrong_file_of_a_folder_is_named_with_its_field(tmp_path):
    write(tmp_path, a=1)
    (tmp_path / "b").write_text("seconds,bits_per_second\n0,x\n")
    links = {"5g": link(1e6, capacity(tmp_path))}
    with pytest.raises(UserError, match=r"/b: network\.links\.5g\.up\.file: line 2: bits_per_second: expected"):
        ClientLinks(links, ["5g"], seed=0)


def test_shipped_traces_come_by_name_with_their_format(tmp_path, monkeypatch):
    spec = TraceCapacity.model_validate({"kind": "trace", "file": "5gophers", "only": "*/VERIZON/*"})
    assert spec.format == "5gophers"
    assert len(traces_of(spec, "down")) == 20
    monkeypatch.chdir(tmp_path)
    write(tmp_path, **{"5gophers": 7})
    assert len(traces_of(spec, "down")) == 20
    assert names(capacity("./5gophers")) == [""]
