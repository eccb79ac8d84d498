"""Links that fail at given times, and what must hold where transfers break."""

from __future__ import annotations

from types import SimpleNamespace


def outages(*spans, link=("internet", "client/0")):
    """Capacity changes that take a link down from ``began`` until ``ended``, for each pair."""

    def attach(network):
        usual = network.capacity(*link)
        for began, ended in spans:
            for seconds, rate in ((began, 0.0), (ended, usual)):
                network.env.timeout(seconds).callbacks.append(lambda _, rate=rate: network.set_capacity(*link, rate))

    return SimpleNamespace(attach=attach, round_begins=lambda network, round: None)


def conserved(result):
    """Check that what was sent of each transfer is what it delivered or kept, and what was lost."""
    first = {event.flow: event.facts.get("first", event.flow) for event in result.of("transfer_start")}
    sizes = {event.flow: event.bytes for event in result.of("transfer_start") if "first" not in event.facts}
    moved, lost, kept, complete = dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0), set()
    for event in result.events:
        if event.kind in ("transfer_end", "transfer_drop"):
            moved[first[event.flow]] += event.bytes
            if event.kind == "transfer_end":
                complete.add(first[event.flow])
        elif event.kind == "transfer_break":
            lost[first[event.flow]] += event.bytes
            kept[first[event.flow]] = event.facts["kept"]
    for flow, size in sizes.items():
        if flow in complete:
            assert moved[flow] == size + lost[flow]
        else:
            assert kept[flow] + lost[flow] <= moved[flow] <= size + lost[flow]
    spent = result.outcome.spent
    assert sum(moved.values()) == spent.bytes + spent.bytes_backhaul
    fates = spent.bytes_useful + spent.bytes_late + spent.bytes_dropped + spent.bytes_retried
    assert fates + spent.bytes_prefetched_in_vain + spent.bytes_broken <= spent.bytes
