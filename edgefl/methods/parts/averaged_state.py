"""Local optimizers whose state the server averages: it is sent with the model both ways (FedAdamW does so with v)."""

from collections.abc import Mapping

from pydantic import SerializeAsAny
from torch import Tensor

from edgefl.methods.parts.client_state import State
from edgefl.methods.parts.optimizers import Optimizer
from edgefl.methods.parts.payload import Downlink, ModelSizes, Part, Payload
from edgefl.methods.parts.server import Arrivals, RoundFacts, ServerUpdate, weighted_sum
from edgefl.models.layout import FLOAT_BYTES

PART = "optimizer"


class AveragedState(ServerUpdate):
    """Another update, and s ← s + Σ_k w_k f_k (s_k - s) of optimizers' tensors; f_k: the factor of a stale one."""

    base: SerializeAsAny[ServerUpdate]
    rule: SerializeAsAny[Optimizer]

    needs = property(lambda self: self.base.needs)
    reads = property(lambda self: self.rule.slots)
    broadcasts = property(lambda self: (*self.base.broadcasts, *self.reads))
    registered_name = property(lambda self: self.base.registered_name)  # type: ignore[pydantic-field]
    objective = property(lambda self: self.base.objective)  # type: ignore[pydantic-field]
    client_state = property(lambda self: self.base.client_state)  # type: ignore[pydantic-field]
    accept_count = property(lambda self: self.base.accept_count)  # type: ignore[pydantic-field]

    @property
    def carried_by(self) -> Mapping[str, str | None]:
        return {**self.base.carried_by, **dict.fromkeys(self.reads, PART)}

    def begin(self, parameters: Tensor) -> State:
        return {**self.base.begin(parameters), **self.rule.first(parameters)}

    def update(self, parameters: Tensor, arrivals: Arrivals, state: State, facts: RoundFacts) -> tuple[Tensor, State]:
        own = {name: vector for name, vector in state.items() if name not in self.reads}
        parameters, own = self.base.update(parameters, arrivals, own, facts)
        weights = [k.weight * k.factor for k in arrivals]
        shares = arrivals.per_client([*weights, sum(k.weight * (1 - k.factor) for k in arrivals)])
        return parameters, own | {
            name: weighted_sum([*(k.uploads[name] for k in arrivals), state[name]], shares) for name in self.reads
        }


class PayloadWithState(Payload):
    """Another payload and the optimizer's state; the first one is known to all."""

    base: SerializeAsAny[Payload]
    rule: SerializeAsAny[Optimizer]

    needs = property(lambda self: self.base.needs)
    sends_blocks = property(lambda self: self.base.sends_blocks)  # type: ignore[pydantic-field]

    def downlink(self, sizes: ModelSizes, round: int, alpha: int | None, held: int | None) -> Downlink:
        sent = self.base.downlink(sizes, round, alpha, held)
        return sent._replace(parts=(*sent.parts, self._part(sizes, round))) if round else sent

    def uplink(self, sizes: ModelSizes) -> tuple[Part, ...]:
        return (*self.base.uplink(sizes), self._part(sizes, 0))

    def _part(self, sizes: ModelSizes, round: int) -> Part:
        each = (FLOAT_BYTES if name == "step" else sizes.model_bytes for name in self.rule.slots)
        return Part(PART, sum(each), round)
