"""Checkpoints of a run's learner: files of tensors, and a manifest ``round-N.json`` that names them.

A client's state is one file, which is written again only if it changed since the last checkpoint. The manifest is
written last, so a checkpoint is complete or absent; then the files that neither it nor the regular one before it name
are removed. From that one, which no end of the run has touched, a finished run can go on: it is kept as one file.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from edgefl.errors import UserError
from edgefl.experiment.journal import Journal, LogDiffers
from edgefl.experiment.recording import RecordedLearner, recording_of
from edgefl.files import write_file
from edgefl.models.layout import content_of
from edgefl.record.events import Listener
from edgefl.record.rounds import RoundRow
from edgefl.training.job import Learner
from edgefl.training.learner import MethodLearner

CHECKPOINT_EVERY = 10
"""Rounds between checkpoints. A kill costs the rounds since the last one that is whole; it is written meanwhile."""

MOST_KEPT_BYTES = 500_000_000
"""The tensors of the checkpoint that a finished run keeps; a larger one is not kept."""

Checkpoint = tuple[int, dict[str, Tensor], dict[str, Any]]
"""The number of rounds that had ended, the tensors by name, and the other facts."""


class _Stored(NamedTuple):
    """A tensor in a file of the last checkpoint, and its version then."""

    tensor: weakref.ref[Tensor]
    version: int
    file: str
    key: str


class _Fresh(NamedTuple):
    file: str
    key: str
    tensor: Tensor
    version: int


class Checkpoints(AbstractContextManager["Checkpoints"]):
    """The checkpoints of one run, written one at a time in a thread of their own while training continues.

    Tensors on the CPU are not copied and must not change, which is checked. A context manager that waits for the last.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="edgefl-checkpoint")
        self._writing: Future[None] | None = None
        self._stored: dict[int, _Stored] = {}

    def newest(self) -> Checkpoint | None:
        manifest = max(self._folder.glob("round-*.json"), default=None)
        return None if manifest is None else self._read(manifest)

    def keep(self, ended: int, path: Path) -> None:
        """Write the last regular checkpoint before the end of round ``ended`` to one file, if it is small enough."""
        path.unlink(missing_ok=True)
        manifest = self._manifest(_regular_before(ended))
        if not manifest.exists() or json.loads(manifest.read_bytes())["bytes"] > MOST_KEPT_BYTES:
            return
        round, tensors, facts = self._read(manifest)
        firsts: dict[str, str] = {}
        same = {name: firsts.setdefault(content_of(tensor), name) for name, tensor in sorted(tensors.items())}
        content = json.dumps({"round": round, "facts": facts, "tensors": same}, sort_keys=True)
        write_file(path, save({name: tensors[name] for name in firsts.values()}, {"checkpoint": content}))

    def _manifest(self, round: int) -> Path:
        return self._folder / f"round-{round:06d}.json"

    def _read(self, manifest: Path) -> Checkpoint:
        try:
            found = json.loads(manifest.read_bytes())
            files = {file: load_file(self._folder / file) for file in {file for file, _ in found["tensors"].values()}}
            tensors = {name: files[file][key] for name, (file, key) in found["tensors"].items()}
            return found["round"], tensors, found["facts"]
        except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
            message = f"this checkpoint cannot be read ({error}); without this folder the run is trained from its start"
            raise UserError(message, file=str(manifest)) from None

    def begin(self, round: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Start to write the state after ``round`` rounds; first wait until the previous checkpoint is complete.

        The name of a tensor is two words and perhaps more, separated by ``/``, of which the first two name a client's
        state. ``facts`` is the other state, as JSON data. Tensors must not change any more: if a part of the method
        does, the next call raises RuntimeError.
        """
        self.finish()
        stored: dict[int, _Stored] = {}
        fresh: list[_Fresh] = []
        for name, tensor in tensors.items():
            known = stored.get(id(tensor)) or self._stored.get(id(tensor))
            if known is None or known.tensor() is not tensor or known.version != tensor._version:
                file = f"round-{round:06d}-{'-'.join(name.split('/')[:2])}.safetensors"
                known = _Stored(weakref.ref(tensor), tensor._version, file, name)
                held = tensor.detach().cpu()
                fresh.append(_Fresh(file, name, held, held._version))
            stored[id(tensor)] = known
        self._stored = stored
        places = {name: (stored[id(tensor)].file, stored[id(tensor)].key) for name, tensor in tensors.items()}
        size = sum(tensor.nbytes for tensor in tensors.values())
        facts = {"round": round, "bytes": size, "tensors": places, "facts": facts}
        self._writing = self._thread.submit(self._write, fresh, facts)

    def finish(self) -> None:
        """Wait for the checkpoint in progress, if there is one; it raises the errors of :meth:`begin`."""
        if self._writing is not None:
            writing, self._writing = self._writing, None  # so that an error is raised once
            writing.result()

    def _write(self, fresh: Sequence[_Fresh], manifest: Mapping[str, Any]) -> None:
        self._folder.mkdir(exist_ok=True)
        for file, group in groupby(sorted(fresh, key=attrgetter("file")), key=attrgetter("file")):
            # A file contains tensors, not views of a common memory.
            tensors = {each.key: each.tensor.clone(memory_format=torch.contiguous_format) for each in group}
            write_file(self._folder / file, save(tensors))
        round = manifest["round"]
        for each in fresh:
            if each.tensor._version != each.version:
                raise RuntimeError(f"'{each.key}' was changed in place after round {round}; parts return new tensors")
        write_file(self._manifest(round), json.dumps(manifest))
        manifests = [each for each in map(self._manifest, (_regular_before(round), round)) if each.exists()]
        kept = {known.name for known in manifests}
        for known in manifests:
            kept |= {file for file, _ in json.loads(known.read_bytes())["tensors"].values()}
        for path in self._folder.glob("round-*"):
            if path.name not in kept:
                path.unlink()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.finish()
        except Exception:
            # The run already ends with another error; a missing checkpoint only costs some rounds of training.
            if error is None:
                raise
        finally:
            self._thread.shutdown()


def read_kept(path: Path) -> Checkpoint:
    """The checkpoint that :meth:`Checkpoints.keep` wrote."""
    try:
        with safe_open(path, "pt") as file:
            found = json.loads(file.metadata()["checkpoint"])
        tensors = load_file(path)
        return found["round"], {name: tensors[first] for name, first in found["tensors"].items()}, found["facts"]
    except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
        reason = f"this checkpoint cannot be read ({error}); without it the run is trained from its start"
        raise UserError(reason, file=str(path)) from None


def _regular_before(round: int) -> int:
    return (round - 1) // CHECKPOINT_EVERY * CHECKPOINT_EVERY


class ResumedLearner(Listener, AbstractContextManager["ResumedLearner"]):
    """A :class:`~edgefl.training.job.Learner` that trains with another one and writes checkpoints.

    A resumed run first repeats recorded rounds: up to the newest checkpoint, of round ``until``, answers come from the
    rows of the journal and nothing is trained. Then the checkpoint's tensors are loaded and training continues. It
    commits the journal after every round, so the journal comes before it in the list of listeners. As a context manager
    it completes its last checkpoint. The ``last`` round needs no checkpoint; ``None`` if something is trained after it.
    ``kept`` is the file of the checkpoint that a finished run keeps, if it keeps one.
    """

    def __init__(
        self,
        learner: MethodLearner,
        method: str,
        journal: Journal,
        folder: Path,
        last: int | None = None,
        *,
        kept: Path | None = None,
    ) -> None:
        self._learner, self._journal = learner, journal
        self._last, self._kept, self._ended = last, kept, 0
        self._checkpoints = Checkpoints(folder)
        self._answers: Learner = learner
        self._held: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        self.until = 0
        found = self._checkpoints.newest()
        # After a power failure the journal may lack the last rounds; then the run is trained from its start.
        if found is not None and found[0] <= journal.rounds:
            self.until, tensors, facts = found
            self._held = tensors, facts
            self._answers = RecordedLearner(recording_of(journal.rows()), method, _missing)

    def __getattr__(self, name: str) -> Any:
        """The methods of a learner are those of the one that answers now."""
        return getattr(self._answers, name)

    def round_ended(self, row: RoundRow) -> None:
        self._ended = row.round
        if self._held is not None:
            if row.round == self.until:
                self._learner.restore(*self._held)
                self._held, self._answers = None, self._learner
            return
        self._journal.commit()
        if row.round % CHECKPOINT_EVERY == 0 and row.round != self._last:
            self._checkpoints.begin(row.round, *self._learner.snapshot())

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._checkpoints.__exit__(kind, error, trace)
        if error is None and self._held is not None:
            raise LogDiffers(f"the run ends before round {self.until}, which has a checkpoint: it cannot be resumed")
        if error is None and self._kept is not None:
            self._checkpoints.keep(self._ended, self._kept)


def _missing(name: str) -> LogDiffers:
    return LogDiffers(f"the journal has no {name}, which the run now requires: it cannot be resumed")
