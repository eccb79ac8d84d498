"""Whatever a plug-in's data set or model returns or raises is named with place, part and package before training."""

from __future__ import annotations

import re
import textwrap

import pytest

from edgefl.cli import main

from .test_broken_plug_ins import SCENARIO, plug_ins

__all__ = ["plug_ins"]

DATA = """
import sys
from dataclasses import replace
from typing import Literal
import numpy as np
import torch
from edgefl.data.spec import DataSpec, Description, Samples

def images(count, **other):
    return Samples(np.zeros((count, 1, 8, 8), np.uint8), np.arange(count) % 4)._replace(**other)

class Part(DataSpec):
    name: Literal["mine"] = "mine"

    def declared(self):
        return DECLARED

    def read(self):
        return READ

PLAIN = Description(classes=4, shape=(1, 8, 8), train=(20,) * 4, test=(5,) * 4)
DECLARED = PLAIN
READ = images(80), images(20)
"""

DECLARATIONS = {
    "another type": ("DECLARED = 3", "declared returned 3; expected a Description or None"),
    "raises": ("def declared(self): raise KeyError('d')\nPart.declared = declared", "KeyError: 'd'"),
    "raises a ValueError": ("def declared(self): int('d')\nPart.declared = declared", "ValueError: invalid literal"),
    "exits": ("def declared(self): sys.exit(3)\nPart.declared = declared", "SystemExit: 3"),
    "no classes": ("DECLARED = replace(PLAIN, classes=0)", "classes = 0; expected a whole number from 1"),
    "other counts": ("DECLARED = replace(PLAIN, train=(20,) * 3)", "train = (20, 20, 20); expected the number of"),
    "no images": ("DECLARED = replace(PLAIN, test=(0,) * 4)", "test = (0, 0, 0, 0); expected the number of"),
    "no shape": ("DECLARED = replace(PLAIN, shape=())", "shape = (); expected the shape of one input"),
    "an empty shape": ("DECLARED = replace(PLAIN, shape=(1, 8, 0))", "shape = (1, 8, 0); expected the shape of one"),
    "flat images": ("DECLARED = replace(PLAIN, shape=(8, 8), kind='images')", "shape = (8, 8); expected (channels"),
    "another kind": ("DECLARED = replace(PLAIN, kind='texts')", "kind = 'texts'; expected images, numbers or tokens"),
    "means of numbers": ("DECLARED = replace(PLAIN, kind='numbers', mean=(0.1,))", "mean = (0.1,); expected 0 numbers"),
    "other means": ("DECLARED = replace(PLAIN, mean=(0.1, 0.2))", "mean = (0.1, 0.2); expected 1 numbers"),
}
READINGS = {
    "fewer images": ("READ = images(60), images(20)", "60 training samples, 15 of class 0; expected 80, 20 of class 0"),
    "fewer test images": ("READ = images(80), images(8)", "8 test samples, 2 of class 0; expected 20, 5 of class 0"),
    "fewer classes": (
        "DECLARED = replace(PLAIN, classes=9, train=(20,) * 4 + (1,) * 5, test=(5,) * 9)",
        "80 training samples, 0 of class 4; expected 85, 1 of class 4, as declared",
    ),
    "fewer labels": ("READ = images(80, labels=np.arange(70) % 4), images(20)", "int64 [70]; expected an array of 80"),
    "another class": (
        "READ = images(80, labels=np.arange(80) % 5), images(20)",
        "training samples with the label 4; expected 0 to 3",
    ),
    "negative labels": ("READ = images(80, labels=np.arange(80) % 4 - 1), images(20)", "the label -1; expected the"),
    "large labels": (
        "READ = images(80, labels=np.arange(80) * 10**9), images(20)\nDECLARED = None",
        "the label 79000000000; expected the numbers of classes, 0 to 99999",
    ),
    "labels that are no numbers": ("READ = images(80, labels=['a'] * 80), images(20)", "as labels of the training"),
    "fractions": ("READ = images(80, labels=np.ones(80)), images(20)", "a numpy.ndarray of float64 [80]; expected"),
    "other owners": ("READ = images(80, owner=np.arange(8)), images(20)", "as owner of the training samples a numpy"),
    "another shape": (
        "READ = images(80, inputs=np.zeros((80, 3, 8, 8), np.uint8)), images(20)",
        "training inputs of the shape (3, 8, 8); expected (1, 8, 8), as declared",
    ),
    "unlike shapes": (
        "READ = images(80), images(20, inputs=np.zeros((20, 1, 9, 9), np.uint8))\nDECLARED = None",
        "test inputs of the shape (1, 9, 9); expected (1, 8, 8), like the training data",
    ),
    "floats": ("READ = images(80, inputs=np.zeros((80, 1, 8, 8))), images(20)", "of float64 [80, 1, 8, 8]; expected"),
    "objects": ("READ = images(80, inputs=np.zeros((80, 1, 8, 8), object)), images(20)", "of object [80, 1, 8, 8]"),
    "tensors": (
        "READ = images(80, inputs=torch.zeros(80, 1, 8, 8, dtype=torch.uint8)), images(20)",
        "a torch.Tensor of uint8 [80, 1, 8, 8]; expected an array of uint8",
    ),
    "flat images": (
        "READ = images(80, inputs=np.zeros((80, 8, 8), np.uint8)), images(20)",
        "of the shape (8, 8); expected (1, 8, 8)",
    ),
    "numbers": (
        "READ = images(80, inputs=np.zeros((80, 1, 8, 8), np.float32)), images(20)",
        "returned numbers as training inputs; expected images, as declared",
    ),
    "unlike kinds": (
        "READ = images(80), images(20, inputs=np.zeros((20, 1, 8, 8), np.float32))\nDECLARED = None",
        "returned numbers as test inputs; expected images, like the training data",
    ),
    "infinite": (
        "READ = images(80, inputs=np.full((80, 3), np.inf, np.float32)), images(20)\nDECLARED = None",
        "training inputs that are not finite",
    ),
    "no images": ("READ = images(0), images(20)\nDECLARED = None", "of the shape (0, 1, 8, 8); expected 1 sample"),
    "one split": ("READ = images(80)", "expected the training and the test data as Samples"),
    "nothing": ("READ = None", "read returned None; expected the training and the test data as Samples"),
    "raises": ("def read(self): raise KeyError('d')\nPart.read = read", "KeyError: 'd'"),
    "exits": ("def read(self): sys.exit(3)\nPart.read = read", "SystemExit: 3"),
}
MODEL = """
import sys
import torch
from torch import nn
from edgefl.models.block_model import BlockModel
from edgefl.models.registry import ModelSpec

class Part(ModelSpec):
    def build(self, sample_shape, classes):
        first = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8))
        blocks = BLOCKS(first, nn.Linear(8, classes))
        return BlockModel(blocks, sample_shape=sample_shape, classes=classes, align_block=1)

def BLOCKS(first, last):
    return {"first": first, "last": last}
"""
MODELS = {
    "raises": ("def BLOCKS(first, last): raise KeyError('d')", "KeyError: 'd'"),
    "exits": ("def BLOCKS(first, last): sys.exit(3)", "SystemExit: 3"),
    "another type": ("Part.build = lambda *all: nn.Linear(3, 4)", "expected a BlockModel, found Linear(in_features=3"),
    "nothing": ("Part.build = lambda *all: None", "expected a BlockModel, found None"),
    "empty": ("def BLOCKS(first, last): return {}", "expected a model with parameters, found 0 blocks without any"),
    "without parameters": ("def BLOCKS(first, last): return {'one': nn.ReLU(), 'two': nn.ReLU()}", "found 2 blocks"),
    "without data": (
        "def BLOCKS(first, last): return {'first': first, 'last': last.to('meta')}",
        "expected float32 on cpu, found float32 on meta in the parameter 'last.weight'",
    ),
    **{
        str(kind): (
            f"def BLOCKS(first, last): return {{'first': first, 'last': last.to(torch.{kind})}}",
            f"expected float32 on cpu, found {kind} on cpu in the parameter 'last.weight'",
        )
        for kind in ("float16", "bfloat16", "float64")
    },
    "a double buffer": (
        "def BLOCKS(first, last):\n    first[2].running_mean = first[2].running_mean.double()\n"
        "    return {'first': first, 'last': last}",
        "found float64 on cpu in the buffer 'first.2.running_mean'",
    ),
}


def told(capsys, tmp_path, family, plug_ins, code, more, named):
    """The one line of every command about a plug-in."""
    plug_ins(family, "mine", code + textwrap.dedent(more) + "\n")
    (tmp_path / "small.yaml").write_text(SCENARIO)
    simulate = ["simulate", "small.yaml", "--engine", "sequential", "--out", "run", "--set", named]
    lines = set()
    for command in (["scenario", "validate", "small.yaml", "--set", named], simulate):
        code = main(command)
        line = capsys.readouterr().err.strip()
        assert (code, line.count("\n")) in {(2, 0), (0, 0)}, line
        lines.add(line) if code else None
        assert not (tmp_path / "run").exists()
    (line,) = lines
    return line


@pytest.mark.parametrize("name", [*DECLARATIONS, *(f"read: {name}" for name in READINGS)])
def test_a_data_set_that_returns_or_raises_something_wrong_is_named_before_training(plug_ins, capsys, tmp_path, name):
    more, message = READINGS[name[6:]] if name.startswith("read: ") else DECLARATIONS[name]
    line = told(capsys, tmp_path, "edgefl.datasets", plug_ins, DATA, more, "data={name: mine, clients: 4}")
    assert line.startswith("error: ")
    assert re.search(
        r"\bdata: the data set 'mine' of the package mine 0\.1 \(mine_module:Part\) cannot be used: ", line
    )
    assert message in line


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_cannot_be_trained_is_named_before_training(plug_ins, capsys, tmp_path, name):
    more, message = MODELS[name]
    line = told(capsys, tmp_path, "edgefl.models", plug_ins, MODEL, more, "model=mine")
    assert re.search(r"\bmodel: the model 'mine' of the package mine 0\.1 \(mine_module:Part\) cannot be used: ", line)
    assert message in line


ODD_BUT_RIGHT = {
    "backwards": "READ = images(80, inputs=np.zeros((80, 1, 8, 8), np.uint8)[::-1, :, ::-1]), images(20)",
    "small numbers": "READ = images(80, labels=(np.arange(80) % 4).astype(np.uint8)[::-1]), images(20)",
    "nothing declared": "DECLARED = None",
    "a class without images": "DECLARED = replace(PLAIN, classes=5, train=(20,) * 4 + (0,), test=(5,) * 4 + (0,))",
}


@pytest.mark.parametrize("name", ODD_BUT_RIGHT)
def test_arrays_of_another_order_and_kind_of_whole_number_are_read(plug_ins, tmp_path, name):
    plug_ins("edgefl.datasets", "mine", DATA + ODD_BUT_RIGHT[name] + "\n")
    (tmp_path / "small.yaml").write_text(SCENARIO)
    command = ["simulate", "small.yaml", "--engine", "sequential", "--out", "run"]
    assert main([*command, "--set", "data={name: mine, clients: 4}"]) == 0
