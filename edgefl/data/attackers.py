"""Clients that attack the training: ``failures: {malicious: {share: 0.2, kind: sign_flip}}``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from edgefl.data.federated import FederatedData
from edgefl.options import Options
from edgefl.randomness import generator


class Attack(Options):
    """What malicious clients do, and how many there are; the seed decides who."""

    share: float = Field(gt=0, lt=1, description="share of all clients that attack; the seed decides which")
    kind: Literal["label_flip", "sign_flip", "noise"] = Field(
        description="label_flip: trains with class C - 1 - c in place of c; sign_flip: sends -scale times its update; "
        "noise: adds normal noise of scale times the update's norm"
    )
    scale: float = Field(default=1.0, gt=0, allow_inf_nan=False, description="size of a sign_flip or of noise")

    def count(self, clients: int) -> int:
        """The number of attackers among so many clients."""
        return round(self.share * clients)

    @model_validator(mode="after")
    def _scales(self) -> Self:
        if self.kind == "label_flip" and "scale" in self.model_fields_set and self.scale != 1.0:
            raise ValueError("scale: expected it with sign_flip or noise; label_flip has no size")
        return self


class Malicious(Options):
    """An entry of ``failures`` for the whole run."""

    malicious: Attack


def attack_of(failures: Iterable[object]) -> Attack | None:
    """The attack among a scenario's failures."""
    return next((each.malicious for each in failures if isinstance(each, Malicious)), None)


@dataclass(frozen=True)
class Attackers:
    """The attackers of one seed."""

    attack: Attack
    seed: int
    clients: frozenset[int]

    @classmethod
    def of(cls, failures: Iterable[object], clients: int, seed: int) -> Attackers | None:
        """Those among so many clients; None without an attack."""
        if (attack := attack_of(failures)) is None:
            return None
        drawn = generator(seed, "malicious").permutation(clients)[: attack.count(clients)]
        return cls(attack, seed, frozenset(drawn.tolist()))

    def data(self, data: FederatedData) -> FederatedData:
        """The data with the labels that the attackers train with."""
        if self.attack.kind != "label_flip":
            return data
        places = torch.from_numpy(np.concatenate([data.shards.shard(client) for client in sorted(self.clients)]))
        labels = data.train.labels.clone()
        labels[places] = data.classes - 1 - labels[places]
        train = replace(data.train, labels=labels)
        return replace(data, train=train, label_counts=data.shards.label_counts(train.strata, train.stratum_count))

    def sent(self, client: int, dispatch: int, start: Tensor, final: Tensor, places: slice) -> Tensor:
        """What a client returns that trained the parameters at ``places``, from ``start`` to ``final`` ``[size]``."""
        if client not in self.clients or self.attack.kind == "label_flip":
            return final
        begun, trained, scale = start[places], final[places], self.attack.scale
        update = trained - begun
        if self.attack.kind == "sign_flip":
            changed = begun - scale * update
        else:
            noise = generator(self.seed, "malicious", client, dispatch).standard_normal(len(update))
            size = scale * float(update.double().norm()) / len(update) ** 0.5
            changed = trained + size * torch.from_numpy(noise).to(trained)
        return torch.cat([final[: places.start], changed, final[places.stop :]])
