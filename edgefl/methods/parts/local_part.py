"""The part of a model that each client keeps for itself, such as batch norm (FedBN; Li et al., ICLR 2021)."""

from dataclasses import replace

import torch
from torch import Tensor

from edgefl.methods.fits import Need, Requirement, check
from edgefl.methods.parts.client_state import ClientState, State, StatesTogether, together
from edgefl.methods.recipe import Method
from edgefl.models.layout import Layout

OWN = "own"


class LocalPart(ClientState):
    """The client's own part of its last local model."""

    vectors = (OWN,)

    places: tuple[tuple[int, int], ...]
    """First and last + 1 number of each of its tensors in the model ``[size]``."""

    def first(self, received: Tensor, parameter_count: int) -> State:
        return {OWN: self._of(received)}

    def after(self, vectors: State, received: Tensor, final: Tensor, lr: float, steps: int) -> State:
        return {OWN: self._of(final)}

    def _of(self, model: Tensor) -> Tensor:
        return torch.cat([model[start:stop] for start, stop in self.places])


def keeping_local(method: Method, layout: Layout, *more: Requirement) -> Method:
    """The method with clients that keep this layout's local part, if any, which must fit it and ``more``."""
    takes: dict[Need, str] = {"shared model": "clients keep a part of this model"} if layout.local else {}
    if layout.local_parameters:
        takes["whole model"] = "clients keep some of this model's for themselves; expected only buffers in `local`"
    check([*method.parts(), *more], takes)
    if not layout.local:
        return method
    before = method.state.states if isinstance(method.state, StatesTogether) else (method.state,)
    others = (each for each in before if not isinstance(each, LocalPart))
    own = LocalPart(places=tuple((place.start, place.stop) for place in layout.local))
    return replace(method, state=together(*others, own))
