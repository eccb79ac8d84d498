"""A learner's state between two rounds, as tensors and plain data: written to checkpoints and restored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from edgefl.training.client_states import State
from edgefl.training.job import JobId, TrainingJob
from edgefl.training.job_inputs import Received
from edgefl.training.server_model import Outcome


@dataclass
class LearnerState:
    """Everything that a learner needs to continue after a round.

    Attributes:
        version: the latest model version.
        vector: its weights ``[size]``.
        server: the server update's vectors, by name.
        versions: the model versions that pending jobs start from, and the latest.
        waiting: submitted jobs that are not trained; the ``discarded`` ones are trained only for their client's state.
        outcomes: jobs that are trained but not aggregated.
        states: client states, by the job that produced them; ``tips`` are the jobs that each client's next job may
            continue from.
        broadcast: the version that a client was broadcast since its last aggregated job, by client.
    """

    version: int
    vector: Tensor
    server: Mapping[str, Tensor]
    versions: Mapping[int, Received]
    waiting: Iterable[TrainingJob]
    discarded: Iterable[JobId]
    outcomes: Mapping[JobId, Outcome]
    states: Mapping[JobId, State]
    tips: Mapping[int, tuple[JobId, ...]]
    broadcast: Mapping[int, int]

    def packed(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors by name, and the rest as JSON data."""
        tensors: dict[str, Tensor] = {"latest": self.vector}
        tensors |= {f"server/{name}": tensor for name, tensor in self.server.items()}
        for version, sent in self.versions.items():
            tensors[f"version/{version}"] = sent.vector
            tensors |= {f"version/{version}/{name}": tensor for name, tensor in sent.broadcasts.items()}
        for number, state in enumerate(self.states.values()):
            tensors |= {f"state/{number}/{name}": tensor for name, tensor in state.items()}
        outcomes = []
        for number, (id, outcome) in enumerate(self.outcomes.items()):
            tensors |= {f"outcome/{number}/final": outcome.final, f"outcome/{number}/sent": outcome.sent}
            tensors[f"outcome/{number}/delta"] = outcome.delta
            tensors |= {f"outcome/{number}/other/{name}": tensor for name, tensor in outcome.others.items()}
            numbers = {key: getattr(outcome, key) for key in _NUMBERS}
            numbers["part"] = list(outcome.part)
            outcomes.append({"id": list(id), "others": sorted(outcome.others), **numbers})
        return tensors, {
            "version": self.version,
            "server": sorted(self.server),
            "versions": {str(version): sorted(sent.broadcasts) for version, sent in self.versions.items()},
            "waiting": [asdict(job) for job in self.waiting],
            "discarded": [list(id) for id in sorted(self.discarded)],
            "outcomes": outcomes,
            "states": [[list(id), sorted(state)] for id, state in self.states.items()],
            "broadcast": [list(each) for each in self.broadcast.items()],
            "tips": [[client, [list(id) for id in jobs]] for client, jobs in self.tips.items()],
        }

    @staticmethod
    def unpacked(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> LearnerState:
        """The inverse of :meth:`packed`.

        Raises:
            KeyError: something is missing.
        """
        return LearnerState(
            version=int(facts["version"]),
            vector=tensors["latest"],
            server={name: tensors[f"server/{name}"] for name in facts["server"]},
            versions={
                int(version): Received(
                    tensors[f"version/{version}"], {name: tensors[f"version/{version}/{name}"] for name in names}
                )
                for version, names in facts["versions"].items()
            },
            waiting=[_job(each) for each in facts["waiting"]],
            discarded=[_id(each) for each in facts["discarded"]],
            outcomes={
                _id(each["id"]): Outcome(
                    final=tensors[f"outcome/{number}/final"],
                    sent=tensors[f"outcome/{number}/sent"],
                    delta=tensors[f"outcome/{number}/delta"],
                    others={name: tensors[f"outcome/{number}/other/{name}"] for name in each["others"]},
                    **{key: each[key] for key in _NUMBERS},
                    part=tuple(each.get("part", (0, 0))),
                )
                for number, each in enumerate(facts["outcomes"])
            },
            states={
                _id(id): {name: tensors[f"state/{number}/{name}"] for name in names}
                for number, (id, names) in enumerate(facts["states"])
            },
            tips={int(client): tuple(_id(id) for id in jobs) for client, jobs in facts["tips"]},
            broadcast={int(client): int(version) for client, version in facts["broadcast"]},
        )

    def to(self, device: Any) -> LearnerState:
        """The same memory with its tensors on a device."""
        tensors, facts = self.packed()
        return LearnerState.unpacked({name: tensor.to(device) for name, tensor in tensors.items()}, facts)


_NUMBERS = ("client", "samples", "steps", "loss", "first_loss", "drift")


def _id(values: Iterable[Any]) -> JobId:
    method, seed, client, dispatch = values
    return JobId(str(method), int(seed), int(client), int(dispatch))


def _job(values: Mapping[str, Any]) -> TrainingJob:
    previous = values["previous"]
    return TrainingJob(**{**values, "id": _id(values["id"]), "previous": None if previous is None else _id(previous)})
