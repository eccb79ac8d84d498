"""Measure how fast this machine reads samples: a PyTorch ``DataLoader`` that fetches, transforms and collates them."""

import time
from io import BytesIO
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from edgefl.data.augment import MAXIMUM_DEGREES, PADDING
from edgefl.data.dataset import load
from edgefl.data.pictures import Pictures
from edgefl.data.spec import DataSpec
from edgefl.errors import UserError
from edgefl.scenario import load_scenario
from edgefl.user_code import UserCode, allow

BLOCK_SECONDS = 0.1
"""Least duration of the batches that are timed together: samples and random transformations differ."""


class Stored(Dataset[tuple[Any, Any]]):
    """The training samples of a scenario as its client would read them: each image is decoded and transformed alone."""

    def __init__(self, spec: DataSpec) -> None:
        inputs, self.labels = spec.checked()[0][:2]
        self.inputs: Any = inputs  # an array, or Pictures
        data, _ = load(spec)
        size, steps = data.shape[-2:], [transforms.ToTensor(), transforms.Normalize(data.mean, data.std)]
        if spec.augment != "none":
            turns = [transforms.RandomRotation(MAXIMUM_DEGREES)] * (spec.augment != "crop_flip")
            steps = [*turns, transforms.RandomCrop(size, PADDING), transforms.RandomHorizontalFlip(), *steps]
        self.size, self.grey = size, data.shape[0] == 1
        self.transform = transforms.Compose(steps) if data.mean else None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        label = self.labels[index]
        if self.transform is None:
            return torch.as_tensor(self.inputs[index]), label
        if isinstance(self.inputs, Pictures):
            source = self.inputs.source(int(self.inputs.numbers[index]))
            opened = Image.open(source if isinstance(source, Path) else BytesIO(source or b""))
            image = opened.convert("L" if self.grey else "RGB").resize((self.size[1], self.size[0]))
        else:
            pixels = self.inputs[index]
            image = Image.fromarray(pixels[0] if self.grey else pixels.transpose(1, 2, 0))
        return self.transform(image), label


def loader_of(text: str) -> DataLoader[Any]:
    """The loader that ``FILE.py:NAME`` returns, or one that reads the training data of a scenario."""
    if ".py:" not in text:
        scenario = load_scenario(text)
        return DataLoader(Stored(scenario.data), batch_size=scenario.training.local.batch, shuffle=True)
    code = UserCode.of(text)
    allow(code.file)
    loader = code.load()()
    if not isinstance(loader, DataLoader):
        raise UserError(f"expected '{code.name}' to return a DataLoader, found {type(loader).__name__}", file=text)
    return loader


def reading_seconds(loader: DataLoader[Any], seconds: float) -> float:
    """Seconds a sample on one core: the least of blocks of batches, because other work on the machine can only add."""
    alone = DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn)
    batches = chain.from_iterable(repeat(alone))
    threads, began, blocks = torch.get_num_threads(), time.perf_counter(), list[float]()
    torch.set_num_threads(1)
    try:
        while not blocks or time.perf_counter() - began < seconds:
            block, samples = time.perf_counter(), 0
            while (spent := time.perf_counter() - block) < BLOCK_SECONDS:
                samples += len(next(batches)[0])
            blocks.append(spent / samples)
    finally:
        torch.set_num_threads(threads)
    return min(blocks)
