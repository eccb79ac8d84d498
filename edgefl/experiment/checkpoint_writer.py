"""Checkpoints are written while training goes on: most of it is waiting for a disk."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from edgefl.experiment.checkpoints import KEPT, prune, write_checkpoint
from edgefl.experiment.journal import Journal


class CheckpointWriter:
    """Writes one checkpoint at a time in a thread of its own; the journal names it once it is whole.

    So a kill during writing leaves the checkpoint before. Tensors on the CPU are not copied: what was handed over must
    stay as it is, which is checked. Used as a context manager, it sees the last one off.

    Args:
        folder: the run's ``checkpoints`` folder.
        journal: told of every checkpoint that is on disk. Where an earlier process wrote some, the newest that it names
            has been read; the others may be damaged, and nothing builds on them.
    """

    def __init__(self, folder: Path, journal: Journal) -> None:
        self._folder = folder
        self._journal = journal
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="edgefl-checkpoint")
        self._writing: tuple[int, Future[str]] | None = None
        self._handed: dict[str, tuple[Tensor, int]] = {}
        self._own: set[str] = set()

    def begin(self, round: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Start to write; waits for the one before, should it still be under way.

        Args:
            round: rounds that have ended.
            tensors: what the learner holds, by name; nobody writes to them any more.
            facts: everything else that it holds, as JSON data.

        Raises:
            OSError: the one before could not be written.
        """
        self.finish()
        held = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
        self._handed = {name: (tensor, tensor._version) for name, tensor in held.items()}
        kept = self._kept()
        sound = kept[:1] + [manifest for manifest in kept[1:] if manifest in self._own]
        writing = self._thread.submit(write_checkpoint, self._folder, round, held, facts, sound)
        self._writing = round, writing

    def collect(self) -> None:
        """Take note of a checkpoint that is written by now, if there is one.

        Raises:
            OSError: it could not be written.
        """
        if self._writing is not None and self._writing[1].done():
            self.finish()

    def finish(self) -> None:
        """Wait for the checkpoint under way, if there is one, and take note of it.

        Raises:
            OSError: it could not be written.
            RuntimeError: a part of the method wrote to a tensor meanwhile.
        """
        if self._writing is None:
            return
        round, writing = self._writing
        try:
            manifest = writing.result()  # Ctrl-C may come here; whoever sees the last one off then waits again
        except OSError:
            self._writing = None
            raise
        for name, (tensor, version) in self._handed.items():
            if tensor._version != version:
                raise RuntimeError(f"'{name}' was changed in place after round {round}; parts return new tensors")
        self._journal.checkpoint(round, manifest)
        self._own.add(manifest)
        self._writing, self._handed = None, {}
        prune(self._folder, self._kept())

    def _kept(self) -> list[str]:
        return [manifest for _, manifest in self._journal.checkpoints()[:KEPT]]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.finish()
        except OSError:
            # Why the run ends already has a reason; a checkpoint that is missing costs some rounds of training.
            if error is None:
                raise
        finally:
            self._thread.shutdown()
