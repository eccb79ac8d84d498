"""What pydantic finds wrong becomes one sentence with file and field."""

from datetime import date
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, field_validator, model_validator

from edgefl.errors import UserError
from edgefl.units import BitsPerSecond, Seconds
from edgefl.validation import validated


class Constant(BaseModel, extra="forbid"):
    kind: Literal["constant"] = "constant"
    rate: BitsPerSecond


class Uniform(BaseModel, extra="forbid"):
    kind: Literal["uniform"]
    low: BitsPerSecond
    high: BitsPerSecond

    @model_validator(mode="after")
    def _ordered(self):
        if self.low > self.high:
            raise ValueError("low must not exceed high")
        return self


class Span(BaseModel, extra="forbid"):
    low: Seconds
    high: Seconds


class Method(BaseModel, extra="forbid"):
    method: str
    steps: int = Field(1, gt=0)


class World(BaseModel, extra="forbid"):
    links: dict[str, Annotated[Constant | Uniform, Field(discriminator="kind")]] = {}
    wait: Seconds | Span = 0.0
    methods: list[str | Method] = []
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

    class Pause(BaseModel, extra="forbid"):
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
