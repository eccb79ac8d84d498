"""Plays as character data: a client is a speaker, and the model predicts the next character."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from edgefl.data.location import data_root, how_to_set_the_root
from edgefl.data.partitions import AnyPartition
from edgefl.data.partitions.by_owner import Natural
from edgefl.data.spec import DATA_SETS, DataSpec, Samples
from edgefl.errors import UserError

ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
"""The classes: newline and the printable ASCII characters. Other characters become question marks."""
FILE = "tinyshakespeare/input.txt"


@DATA_SETS.register("shakespeare")
class Shakespeare(DataSpec):
    """Windows of a speaker's text, and the character that follows each; a client is a speaker.

    The file ``tinyshakespeare/input.txt`` contains speeches separated by empty lines; the first line of each is
    ``SPEAKER:``. The first part of each speaker's text is for training, the rest for testing. Speakers are ordered by
    their number of training windows, descending. A window is within one part.
    """

    name: Literal["shakespeare"] = Field(default="shakespeare", description="speeches of plays; a client is a speaker")
    partition: AnyPartition = Field(default=Natural(), description="natural: a client is a speaker; or any other")
    window: int = Field(default=80, ge=1, description="number of characters from which the next one is predicted")
    stride: int = Field(default=5, ge=1, description="characters between the starts of two windows")
    train_share: float = Field(default=0.8, gt=0, lt=1, description="share of each speaker's text for training")
    vocabulary: int = Field(len(ALPHABET), ge=len(ALPHABET), description="tokens of the model; the rest never occur")
    least: int = Field(default=2, ge=1, description="minimum training windows of a speaker; others are dropped")

    def read(self) -> tuple[Samples, Samples]:
        """Windows of character indices in :data:`ALPHABET`, speaker by speaker."""
        path = data_root(self.root) / FILE
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"'{path}' cannot be read ({error}); {how_to_set_the_root()}") from None
        parts = []
        for speech in speeches(text).values():
            codes = encoded(speech)
            cut = int(len(codes) * self.train_share)
            train, test = (self._windows(part) for part in (codes[:cut], codes[cut:]))
            if len(train[1]) >= self.least and len(test[1]):
                parts.append((train, test))
        if not parts:
            raise UserError(f"'{path}' holds no speaker with {self.window} characters and more to train and test on")
        parts.sort(key=lambda part: -len(part[0][1]))
        known = self.vocabulary
        return _joined([train for train, _ in parts], known), _joined([test for _, test in parts], known)

    def _windows(self, codes: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """All windows of a text ``[windows, window]``, and the next character of each ``[windows]``."""
        if len(codes) <= self.window:
            return np.zeros((0, self.window), dtype=np.uint8), np.zeros(0, dtype=np.int64)
        every = np.lib.stride_tricks.sliding_window_view(codes, self.window + 1)[:: self.stride]
        return np.ascontiguousarray(every[:, :-1]), every[:, -1].astype(np.int64)


def speeches(text: str) -> dict[str, str]:
    r"""The text of each speaker, in order of first appearance; speeches are joined by a newline.

    >>> speeches("A:\nOne,\ntwo.\n\nB:\nThree.\n\nA:\nFour.")
    {'A': 'One,\ntwo.\nFour.', 'B': 'Three.'}
    """
    said: dict[str, list[str]] = {}
    for block in text.replace("\r\n", "\n").split("\n\n"):
        heading, _, speech = block.strip("\n").partition("\n")
        if heading.endswith(":") and speech:
            said.setdefault(heading[:-1], []).append(speech)
    return {speaker: "\n".join(parts) for speaker, parts in said.items()}


def encoded(text: str) -> NDArray[np.uint8]:
    r"""Character indices in :data:`ALPHABET`.

    >>> encoded("\n A~é").tolist()
    [0, 1, 34, 95, 32]
    """
    raw = np.frombuffer(text.encode("ascii", errors="replace"), dtype=np.uint8)
    places = np.full(256, ALPHABET.index("?"), dtype=np.uint8)
    places[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET), dtype=np.uint8)
    return places[raw]


def _joined(parts: list[tuple[NDArray[np.uint8], NDArray[np.int64]]], classes: int) -> Samples:
    return Samples(
        inputs=np.concatenate([windows for windows, _ in parts]),
        labels=np.concatenate([following for _, following in parts]),
        owner=np.repeat(np.arange(len(parts)), [len(following) for _, following in parts]),
        classes=classes,
    )
