"""Write checkpoints while training continues: most of the time is waiting for a disk."""

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
    """Writes one checkpoint at a time in its own thread; the journal records it once it is complete.

    So after a kill during writing the previous checkpoint remains valid. Tensors on the CPU are not copied: they must
    not change, which is checked. Use it as a context manager, which waits for the last checkpoint.

    Args:
        folder: the run's ``checkpoints`` folder.
        journal: records every checkpoint that is on disk. Of the checkpoints of an earlier process, the newest in the
            journal has been read; the others may be damaged, and are not reused.
    """

    def __init__(self, folder: Path, journal: Journal) -> None:
        self._folder = folder
        self._journal = journal
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="edgefl-checkpoint")
        self._writing: tuple[int, Future[str]] | None = None
        self._handed: dict[str, tuple[Tensor, int]] = {}
        self._own: set[str] = set()

    def begin(self, round: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Start to write; first wait for the previous checkpoint if it is not complete.

        Args:
            round: rounds that have ended.
            tensors: the learner's tensors, by name; they must not change any more.
            facts: its other state, as JSON data.

        Raises:
            OSError: the previous checkpoint could not be written.
        """
        self.finish()
        held = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
        self._handed = {name: (tensor, tensor._version) for name, tensor in held.items()}
        kept = self._kept()
        sound = kept[:1] + [manifest for manifest in kept[1:] if manifest in self._own]
        writing = self._thread.submit(write_checkpoint, self._folder, round, held, facts, sound)
        self._writing = round, writing

    def collect(self) -> None:
        """Record the checkpoint if it is complete.

        Raises:
            OSError: it could not be written.
        """
        if self._writing is not None and self._writing[1].done():
            self.finish()

    def finish(self) -> None:
        """Wait for the checkpoint in progress, if there is one, and record it.

        Raises:
            OSError: it could not be written.
            RuntimeError: a part of the method changed a tensor in place in the meantime.
        """
        if self._writing is None:
            return
        round, writing = self._writing
        try:
            manifest = writing.result()  # Ctrl-C may come here; the exit of the context manager then waits again
            self._check_unchanged(round)
            self._journal.checkpoint(round, manifest)
        except Exception:
            self._writing = None  # so that the error is raised once
            raise
        self._own.add(manifest)
        self._writing, self._handed = None, {}
        prune(self._folder, self._kept())

    def _check_unchanged(self, round: int) -> None:
        for name, (tensor, version) in self._handed.items():
            if tensor._version != version:
                raise RuntimeError(f"'{name}' was changed in place after round {round}; parts return new tensors")

    def _kept(self) -> list[str]:
        return [manifest for _, manifest in self._journal.checkpoints()[:KEPT]]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.finish()
        except Exception:
            # The run already ends with another error; a missing checkpoint only costs some rounds of training.
            if error is None:
                raise
        finally:
            self._thread.shutdown()
