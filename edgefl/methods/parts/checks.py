"""Checks of what the parts of a method return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from edgefl.errors import WrongAnswer, one_line
from edgefl.methods.parts.objective import Loss
from edgefl.methods.parts.payload import Downlink, Part


def checked_loss(answer: object) -> Loss:
    """Check what :meth:`Objective.loss` returned."""
    if not isinstance(answer, Loss):
        raise WrongAnswer(f"its loss returned {one_line(answer)}; expected Loss(total, cross_entropy)")
    for name, value in zip(Loss._fields, answer, strict=True):
        if not isinstance(value, Tensor) or value.dim() or not value.is_floating_point():
            found = one_line(value)
            if isinstance(value, Tensor):
                found = f"a tensor of {value.dtype} {list(value.shape)}".replace("torch.", "")
            raise WrongAnswer(
                f"its loss returned {found} as {name}; expected one number, a tensor of shape [], such as a mean"
            )
    return answer


def checked_update(
    answer: object, parameters: Tensor, broadcasts: Iterable[str] = ()
) -> tuple[Tensor, dict[str, Tensor]]:
    """Check the parameters and the server state from :meth:`~edgefl.methods.parts.server.ServerUpdate.update`.

    The next parameters must have the shape, type and device of the previous ones. ``broadcasts`` names the state's
    vectors that clients receive.
    """
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise WrongAnswer(f"update returned {one_line(answer)}; expected the next parameters and the server state")
    _check_like(answer[0], parameters, "update returned as the next parameters")
    return answer[0], checked_state(answer[1], broadcasts)


def checked_state(answer: object, broadcasts: Iterable[str]) -> dict[str, Tensor]:
    """Check the server state that a server update returned."""
    tensors = isinstance(answer, Mapping) and all(isinstance(value, Tensor) for value in answer.values())
    if not isinstance(answer, Mapping) or not tensors:
        raise WrongAnswer(f"it returned as the server state {one_line(answer)}; expected tensors by name")
    for name in broadcasts:
        if name not in answer:
            raise WrongAnswer(f"it returned a server state without '{name}', which clients are to receive")
    return dict(answer)


def _check_like(found: object, wanted: Tensor, what: str) -> None:
    if not isinstance(found, Tensor):
        raise WrongAnswer(f"{what} {one_line(found)}; expected a tensor")
    kinds = [f"{each.dtype} {list(each.shape)} on {each.device}" for each in (found, wanted)]
    if kinds[0] != kinds[1]:
        raise WrongAnswer(f"{what} a tensor of {kinds[0]}; expected {kinds[1]}".replace("torch.", ""))


def checked_downlink(answer: object, blocks: int) -> Downlink:
    """Check the return value of :meth:`Payload.downlink` for a model of so many blocks."""
    if not isinstance(answer, Downlink):
        raise WrongAnswer(f"downlink returned {one_line(answer)}; expected a Downlink")
    if not isinstance(answer.alpha, int) or not 1 <= answer.alpha <= blocks:
        raise WrongAnswer(f"downlink returned alpha = {one_line(answer.alpha)}; expected 1 to {blocks}")
    checked_parts(answer.parts)
    return answer


def checked_parts(answer: object) -> tuple[Part, ...]:
    """Check the parts of a downlink or of the return value of :meth:`Payload.uplink`."""
    if not isinstance(answer, tuple) or not all(isinstance(part, Part) for part in answer):
        raise WrongAnswer(f"it sends {one_line(answer)}; expected a tuple of parts")
    for part in answer:
        if not isinstance(part.bytes, int) or part.bytes < 0:
            raise WrongAnswer(f"its part '{part.name}' has {one_line(part.bytes)} bytes; expected 0 or more")
    return answer
