"""What training changes for privacy: the sum of a ring, clipped updates and gradients, and their noise."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from pydantic import SerializeAsAny
from torch import Tensor

from edgefl.methods.parts.client_state import State
from edgefl.methods.parts.objective import Batch, Context, Loss, Objective
from edgefl.methods.parts.private import Private
from edgefl.methods.parts.server import Arrivals, RoundFacts, weighted_sum
from edgefl.models.layout import Weights
from edgefl.privacy.differential_privacy import AdaptiveClip, DifferentialPrivacy
from edgefl.privacy.ledger import Exposure
from edgefl.privacy.secure_aggregation import SecureAggregation
from edgefl.randomness import generator

_NUMBERS = 1 << 26
"""Numbers of examples' gradients that are computed at a time."""


def ring_mean(vectors: Iterable[Tensor], weights: Sequence[float], spec: SecureAggregation, unit: float) -> Tensor:
    """Σ_k w_k x_k ``[n]`` of quantised numbers, whose sum in the ring is exact.

    A client multiplies its numbers by w_k over the ``unit``, the weight of a full client, clips them to ±range, and
    rounds them to one of 2^bits levels. The ring has R = K (2^bits - 1) + 1 elements, so no sum wraps around.

    >>> spec = SecureAggregation(kind="secagg", bits=2, range=3.0)  # levels -3, -1, 1, 3
    >>> ring_mean(torch.tensor([[1.2, -9.0], [3.1, 0.1]]), [0.5, 0.5], spec, 0.5)
    tensor([ 2., -1.])
    """
    total, clients, levels = None, 0, 2**spec.bits - 1
    for vector, weight in zip(vectors, weights, strict=True):
        scaled = (vector.double() * (weight / unit)).clamp_(-spec.range, spec.range)
        quantised = scaled.add_(spec.range).mul_(levels / (2 * spec.range)).round_().long()
        total, clients = quantised if total is None else total.add_(quantised), clients + 1
    assert total is not None
    found = total.double().mul_(2 * spec.range / levels).sub_(clients * spec.range).mul_(unit)
    return found.to(vector.dtype)


def noise_like(vector: Tensor, deviation: float, seed: int, *key: Any) -> Tensor:
    """Gaussian noise ``[n]`` from the key of a round, or of a client's job in it."""
    numbers = generator(seed, "privacy noise", *key).standard_normal(len(vector))
    return torch.from_numpy(numbers * deviation).to(vector)


@dataclass(frozen=True)
class PrivateTraining(Private):
    """The training of a scenario with a section ``privacy``, ``batch`` images in a local step, and noise σ."""

    secure: SecureAggregation | None
    dp: DifferentialPrivacy | None
    exposure: Exposure | None
    rounds: int
    cohort: int
    batch: int

    @cached_property
    def noise(self) -> float:
        return 0.0 if self.exposure is None else self.exposure.noise(self.rounds)

    def objective(self, base: Objective, samples: int) -> Objective:
        if self.dp is None or self.dp.of_clients:
            return base
        assert isinstance(self.dp.clip, float)
        size = min(self.batch, samples) if self.dp.sampling == "poisson" else None
        return ClippedExamples(base=base, clip=self.dp.clip, noise=self.noise, size=size)

    def begin(self, like: Tensor) -> State:
        clip = None if self.dp is None else self.dp.clip
        return {"clip": like.new_tensor(clip.initial)} if isinstance(clip, AdaptiveClip) else {}

    def arrived(
        self, arrivals: Arrivals, samples: Sequence[int], state: Mapping[str, Tensor], facts: RoundFacts, seed: int
    ) -> tuple[Arrivals, State]:
        rows, after, clip = list(arrivals.scaled()), dict[str, Tensor](), 0.0
        if (dp := self.dp) is not None and dp.of_clients:
            clip = float(state["clip"]) if isinstance(dp.clip, AdaptiveClip) else dp.clip
            norms = [float(row.double().norm()) for row in rows]
            rows = [row * min(1.0, clip / norm) if norm else row for row, norm in zip(rows, norms, strict=True)]
            if isinstance(dp.clip, AdaptiveClip):
                after = {"clip": self._next_clip(dp.clip, state["clip"], norms, facts.round, seed)}
        if dp is not None and dp.kind == "local":
            key = "local", facts.round
            own = (noise_like(rows[0], self.noise * clip, seed, *key, each.client) for each in arrivals)
            rows = [row + each for row, each in zip(rows, own, strict=True)]
        weights = [each.weight for each in arrivals]
        if self.secure is not None:
            largest, most = max(weights), self.secure.max_weight
            unit = largest if most is None else largest * most / samples[weights.index(largest)]
            mean = ring_mean(rows, weights, self.secure, unit)
        elif dp is not None and dp.kind == "central":
            mean = weighted_sum(rows, arrivals.weights)
        else:
            moves = torch.stack(rows)
            return Arrivals(arrivals.each, moves, moves), after
        if dp is not None and dp.kind == "central":
            count = self.cohort if dp.sampling == "poisson" else len(rows)
            noise = noise_like(mean, self._update_noise() * clip / count, seed, "central", facts.round)
            mean = mean * (len(rows) / count) + noise
        whole = replace(arrivals.each[0], client=-1, weight=1.0, factor=1.0)
        return Arrivals([whole], mean[None], mean[None]), after

    def _update_noise(self) -> float:
        """The noise multiplier of the sum, less what the noise on the count of unclipped updates contributes."""
        clip = None if self.dp is None else self.dp.clip
        if not isinstance(clip, AdaptiveClip) or not self.noise:
            return self.noise
        return float((self.noise**-2 - (2 * (clip.count_noise or self.cohort / 20)) ** -2) ** -0.5)

    def _next_clip(self, clip: AdaptiveClip, now: Tensor, norms: Sequence[float], round: int, seed: int) -> Tensor:
        """C exp(-η_C (b - γ)), b the part of the updates that were not clipped, with noise (Andrew et al. 2021)."""
        deviation = (clip.count_noise or self.cohort / 20) * bool(self.noise)
        draw = generator(seed, "privacy noise", "count", round).standard_normal()
        inside = sum(norm <= float(now) for norm in norms) + draw * deviation
        return now * math.exp(-clip.rate * (inside / len(norms) - clip.quantile))


class ClippedExamples(Objective):
    """A loss whose gradient is the noisy sum of the examples' clipped gradients, over the usual ``size`` of a batch.

    DP-SGD (Abadi et al. 2016) with the examples' gradients of another loss, g_i: the gradient is
    (Σ_i g_i min(1, C/‖g_i‖) + σ C ν) / size with ν a standard normal vector of the job's and step's key.
    """

    base: SerializeAsAny[Objective]
    clip: float
    noise: float
    size: int | None  # None: that of the batch itself

    side_by_side = False

    frozen = property(lambda self: self.base.frozen)
    vectors = property(lambda self: self.base.vectors)
    client = property(lambda self: self.base.client)
    proximal_weight = property(lambda self: self.base.proximal_weight)  # type: ignore[pydantic-field]

    def draw(self, generator: np.random.Generator, batch: int) -> dict[str, Tensor]:
        return {"noise": torch.tensor(int(generator.integers(2**62)))}

    def loss(self, local: Weights, batch: Batch, context: Context) -> Loss:
        layout = context.model.layout
        own = [local[entry.block][entry.name] for entry in layout.parameters]
        gradients, losses = self._clipped(local, [each.detach() for each in own], batch, context)
        if self.noise:
            draws = torch.Generator().manual_seed(int(context.draws["noise"]))
            noise = torch.randn(layout.parameter_count, generator=draws).to(own[0]) * (self.noise * self.clip)
            noisy = layout.weights(noise, noise.new_zeros(layout.buffer_count))
            gradients = [
                each + noisy[entry.block][entry.name] for each, entry in zip(gradients, layout.parameters, strict=True)
            ]
        # A linear function of the parameters whose gradient this is.
        total = sum((each * gradient).sum() for each, gradient in zip(own, gradients, strict=True))
        total = torch.as_tensor(total) / (self.size or len(batch.labels))
        return Loss(total, losses.mean() if len(losses) else losses.new_zeros(()))

    def _clipped(
        self, local: Weights, parameters: list[Tensor], batch: Batch, context: Context
    ) -> tuple[list[Tensor], Tensor]:
        """Σ_i g_i min(1, C/‖g_i‖) for each parameter, and the losses ``[batch]``."""
        entries = context.model.layout.parameters

        def of_one(values: list[Tensor], inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            weights: Weights = tuple(dict(block) for block in local)
            for entry, value in zip(entries, values, strict=True):
                weights[entry.block][entry.name] = value
            return self.base.loss(weights, Batch(inputs[None], labels[None]), context)

        if not len(batch.labels):
            return [torch.zeros_like(each) for each in parameters], batch.inputs.new_zeros(0)
        chunk = max(1, _NUMBERS // context.model.layout.parameter_count)
        each = torch.func.vmap(torch.func.grad(of_one, has_aux=True), in_dims=(None, 0, 0), chunk_size=chunk)
        gradients, losses = each(parameters, batch.inputs, batch.labels)
        norms = sum(gradient.flatten(1).square().sum(1) for gradient in gradients).sqrt()
        factors = (self.clip / norms).clamp(max=1.0)
        sums = [
            (factors @ gradient.flatten(1)).view_as(own) for gradient, own in zip(gradients, parameters, strict=True)
        ]
        return sums, losses
