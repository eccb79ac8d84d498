"""What pydantic finds wrong becomes one sentence with file and field."""

import re
import warnings
from datetime import date
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, field_validator, model_validator

from edgefl.errors import UserError
from edgefl.fleet import load_profile
from edgefl.fleet.profile import DeviceProfile
from edgefl.network.specs import StarTopology
from edgefl.options import Options
from edgefl.simulation.accounts import BudgetSpec
from edgefl.simulation.protocols.synchronous import SynchronousSpec
from edgefl.units import UNITS, BitsPerSecond, Seconds, parse
from edgefl.validation import validated


class Constant(Options):
    kind: Literal["constant"] = "constant"
    rate: BitsPerSecond


class Uniform(Options):
    kind: Literal["uniform"]
    low: BitsPerSecond
    high: BitsPerSecond

    @model_validator(mode="after")
    def _ordered(self):
        if self.low > self.high:
            raise ValueError("low must not exceed high")
        return self


class Span(Options):
    low: Seconds
    high: Seconds


class Method(Options):
    method: str
    steps: int = Field(1, gt=0)


class World(Options):
    links: dict[str, Annotated[Constant | Uniform, Field(discriminator="kind")]] = Field(default={})
    wait: Seconds | Span = 0.0
    methods: list[str | Method] = Field(default=[])
    mode: Literal["star", "cells", "file"] = "star"
    on: bool = True
    since: date | None = None
    pair: tuple[int, int] = (0, 0)


def message(data, **options):
    with pytest.raises(UserError) as caught:
        validated(World, data, **options)
    return str(caught.value)


def test_valid_data_becomes_the_model():
    assert validated(World, {"wait": "20 ms", "links": {"5g": {"kind": "constant", "rate": "4 Mbit/s"}}}).wait == 0.02


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"mehtods": []}, "mehtods: unknown key; did you mean 'methods'?"),
        ({"methods": [{"method": "a", "step": 2}]}, "methods.0.step: unknown key; did you mean 'steps'?"),
        ({"methods": ["a", {"method": "b", "steps": 0}]}, "methods.1.steps: expected more than 0, found 0"),
        ({"methods": [3]}, "methods.0: expected text or a mapping, found 3"),
        ({"methods": {}}, "methods: expected a list, found an empty mapping"),
        ({"mode": "stars"}, "mode: unknown choice 'stars'; did you mean 'star'?"),
        ({"mode": 4}, "mode: unknown choice 4; expected one of: cells, file, star"),
        ({"wait": "3 msec"}, "wait: unknown unit 'msec' in '3 msec'; did you mean 'ms'?"),
        ({"wait": -1}, "wait: expected 0 or more, found -1"),
        ({"wait": {"low": 1}}, "wait.high: this key is missing"),
        ({"links": {"5g": {"kind": "unifrom"}}}, "links.5g.kind: unknown choice 'unifrom'; did you mean 'uniform'?"),
        (
            {"links": {"5g": {"rate": 4}}},
            "links.5g.kind: this key is missing; the meaning of the other keys depends on it",
        ),
        ({"links": {"5g": {"kind": "uniform", "low": 2, "high": 1}}}, "links.5g: low must not exceed high"),
        (
            {"links": {"uniform": {"kind": "constant", "rat": 2}}},
            "links.uniform.rat: unknown key; did you mean 'rate'?",
        ),
        ({"on": "maybe"}, "on: expected true or false, found 'maybe'"),
        ({"since": "yesterday"}, "since: expected a date such as 2026-11-21, found 'yesterday'"),
        ({"pair": [1, "x"]}, "pair.1: expected a whole number, found 'x'"),
        ({"pair": None}, "pair: expected a list, found null"),
        ([], "expected a mapping, found an empty list"),
        ({3: 4}, "3: expected a key that is text, found 3"),
    ],
)
def test_one_problem_is_one_sentence_with_its_path(data, expected):
    assert message(data) == expected
    assert message(data, file="a.yaml") == f"a.yaml: {expected}"


def test_the_error_carries_file_and_field():
    with pytest.raises(UserError) as caught:
        validated(World, {"pair": [1, "x"]}, file="a.yaml", field="world")
    assert (caught.value.file, caught.value.field) == ("a.yaml", "world.pair.1")


def test_at_most_five_of_several_problems_are_listed():
    lines = message({"wait": "x", "methods": 1, "mode": "x", "on": 3, "pair": 1, "links": 3, "x": 1}, file="a.yaml")
    assert lines.splitlines()[0] == "a.yaml: 7 problems"
    assert lines.splitlines()[-1] == "  and 2 more"
    assert len(lines.splitlines()) == 7


def test_an_error_raised_by_a_validator_as_a_user_error_gets_its_file():
    class Strict(BaseModel):
        @model_validator(mode="before")
        @classmethod
        def _refuse(cls, data):
            raise UserError("no")

    with pytest.raises(UserError, match=r"^a\.yaml: no$"):
        validated(Strict, {}, file="a.yaml")


def test_a_mapping_where_a_quantity_or_a_model_may_stand_is_judged_as_the_model():
    class Ordered(Span):
        @model_validator(mode="after")
        def _ordered(self):
            if self.low > self.high:
                raise ValueError("low must not exceed high")
            return self

    class Pause(Options):
        wait: Seconds | Ordered

    def complaint(data):
        with pytest.raises(UserError) as caught:
            validated(Pause, data)
        return str(caught.value)

    assert complaint({"wait": {"low": 2, "high": 1}}) == "wait: low must not exceed high"
    assert complaint({"wait": {"low": 2, "hihg": 1}}) == "wait.hihg: unknown key; did you mean 'high'?"


def test_a_validator_that_validates_another_model_keeps_its_paths():
    class Open(BaseModel):
        inner: object

        @field_validator("inner")
        @classmethod
        def _inner(cls, data):
            return Span.model_validate(data)

    with pytest.raises(UserError) as caught:
        validated(Open, {"inner": {"low": 1, "high": "soon"}})
    assert str(caught.value) == "inner.high: expected seconds such as '20 ms', found 'soon'"


SIZES = [
    ("bits_per_second", "125MBps", 1e9), ("bits_per_second", "5kBps", 4e4), ("bits_per_second", "10 Mb/s", 1e7),
    ("bits_per_second", "56 Kb/s", 5.6e4), ("bits_per_second", "10 MiBps", 80 * 2**20),
    ("bits_per_second", "10 Mib/s", 10 * 2**20), ("bits_per_second", "10mbit", 1e7),
    ("bits_per_second", "6 MB/min", 8e5), ("bits_per_second", "8 megabits per second", 8e6),
    ("bits_per_second", "3 Mbti/s", 3e6), ("bytes", "100 Mb", 12.5e6), ("bytes", "3 KB", 3e3),
    ("flops", "5 GFLOP/s", None), ("joules", "15 mA h", None), ("seconds", "20 µsec", 20e-6),
    ("bytes", "2 mbytes", 2e6), ("bytes", "512M", None), ("bytes", "5 MB/s", None), ("seconds", "20 µs", 20e-6),
    ("seconds", "20 ns", 20e-9), ("seconds", "5 m", 300.0), ("seconds", "2 hrs", 7200.0),
    ("seconds", "2 weeks", 1209600.0), ("seconds", "5 Ms", None), ("joules", "15 wh", 54e3),
    ("seconds", "20 mS", 0.02), ("bits_per_second", "1 kB/ms", 8e6),
    ("joules", "5 kWs", 5e3),
    ("joules", "2 MWh", 7.2e9), ("joules", "5000 mAh", None), ("joules", "15 mAh", None), ("joules", "5 W", None),
    ("watts", "800 mw", 0.8), ("watts", "3 dBm", None), ("flops_per_second", "3 gflops", 3e9),
    ("flops_per_second", "3 TOPS", None), ("bytes_per_second", "40 Gb/s", 5e9),
]  # fmt: skip


@pytest.mark.parametrize(("dimension", "given", "means"), SIZES)
def test_advice_has_the_size_of_what_was_written(dimension, given, means):
    with pytest.raises(UserError, match="unknown unit") as caught:
        parse(given, dimension)
    found = re.search(r"did you mean '([^']*)'\?", str(caught.value))
    if means is None:
        assert found is None
    else:
        number = re.match(r"[\d.]+", given)[0] if found[1] in UNITS[dimension] else ""
        assert parse(f"{number}{found[1]}", dimension) == pytest.approx(means, rel=1e-3)


@pytest.mark.parametrize(
    "given", ["1,5 Mbit/s", "1,234", "1 000 kbit/s", "1.234,5 kbit/s", "1_000 kbit/s", "1'000 kbit/s"]
)
def test_a_number_with_separators_is_no_number_with_an_unknown_unit(given):
    with pytest.raises(UserError, match=f"expected bits per second such as '40 Mbit/s', found '{given}'"):
        parse(given, "bits_per_second")


def test_a_charge_is_times_the_volts_of_the_cell_and_mb_is_ambiguous():
    with pytest.raises(UserError, match=r"multiply it by the cell's volts; at 3\.7 V it is 18\.5 Wh"):
        parse("5000 mAh", "joules")
    with pytest.raises(UserError, match="did you mean 'Mbit/s' or 'MB/s'"):
        parse("10 mb/s", "bits_per_second")


BARE = [
    ({"power": {"idle": 2532, "compute": 5100}}, ["2532 mW", "5100 mW", "milliwatts"]),
    ({"power": {"idle": 350, "compute": 700}}, ["700 W are many for this kind of device"]),
    ({"power": {"radio": {"up": {"active": 800}}}}, ["800 mW"]),
    ({"memory": {"training": 3072}}, ["3072 MB"]),
    ({"memory": {"training": "512"}}, ["512 MB"]),
    ({"compute": {"operator_overhead": 25}}, ["25 us"]),
    ({"compute": {"memory_bandwidth": 9}}, ["9 GB/s"]),
    ({"compute": {"memory_bandwidth": 25.6}}, ["25.6 GB/s"]),
    ({"memory": {"training": 1.5}}, ["1.5 GB"]),
    ({"power": {"idle": 3, "compute": 5100.5}}, ["5100.5 mW", "milliwatts"]),
    ({"battery": {"capacity": 19}}, ["19 Wh"]),
    ({"battery": {"capacity": 15.4}}, ["15.4 Wh"]),
    (
        {"battery": {"capacity": 5000}},
        ["as 5000 mAh, this is a charge: multiply it by the cell's volts; at 3.7 V it is 18.5 Wh"],
    ),
    ({"power": {"idle": 3, "compute": 12}, "memory": {"training": 2**31}}, []),
]


@pytest.mark.parametrize(("changes", "meant"), BARE)
def test_a_figure_that_is_rarely_meant_without_a_unit_is_mentioned(changes, meant):
    data = load_profile("raspberry-pi-4").model_dump(mode="json", exclude_none=True)
    for section, figures in changes.items():
        for name, figure in figures.items():
            inside = data.setdefault(section, {})
            inside[name] = {**inside[name], **figure} if isinstance(figure, dict) and name == "radio" else figure
            if name == "radio":
                inside[name]["up"] = {**inside[name]["down"], **figure["up"]}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        DeviceProfile.model_validate(data)
    assert len(said) == len(meant)
    for message, part in zip(said, meant, strict=True):
        assert part in str(message.message)


def test_a_time_of_a_round_and_a_budget_without_a_unit_are_mentioned():
    for model, data, meant in (
        (SynchronousSpec, {"deadline": 30000}, "30000 ms"),
        (BudgetSpec, {"bytes": 500}, "500 MB"),
        (BudgetSpec, {"flops": 5}, "5 GFLOP"),
        (SynchronousSpec, {"deadline": 30000.0}, "30000.0 ms"),
        (BudgetSpec, {"bytes": 1.5}, "1.5 MB"),
        (StarTopology, {"kind": "star", "server": {"down": "1 Gbit/s", "up": "1 Gbit/s"}, "latency": 5.0}, "5.0 ms"),
        (Constant, {"rate": 10.0}, "10.0 Mbit/s"),
        (SynchronousSpec, {"deadline": 3600}, None),
        (SynchronousSpec, {"deadline": 1234.5}, None),
        (SynchronousSpec, {"deadline": 30}, None),
    ):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model.model_validate(data)
        assert [str(each.message).split("did you mean ")[1] for each in said] == ([f"'{meant}'?"] if meant else [])
