"""Every method's local step against a step written by hand from the method's formulas, in double precision.

The hand side has its own network (plain convolutions and products on the same weights), losses and updates. Only the
order of the flat vector is shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgefl.methods.build import build_method
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import local_step
from edgefl.methods.parts.objective import Batch, Context
from edgefl.methods.recipe import METHODS, Method
from edgefl.models.block_model import BlockModel
from edgefl.models.classifier import Classifier
from edgefl.models.residual import Residual
from edgefl.models.slimmable import Conv2d, Linear
from edgefl.record.names import BASELINES

LR, STEPS, CLASSES = 0.1, 3, 4
PLAIN = LocalOptions(lr=LR)
HELD_BACK = LocalOptions(lr=LR, clip_norm=0.05, weight_decay=0.01)
"""Clipping that bites, and weight decay; the two have an order."""

DRAWS = {
    "mixup": {"share": torch.tensor(0.3, dtype=torch.float64), "partner": torch.tensor([2, 0, 1, 4, 3, 5])},
    "fjord": {"width": torch.tensor(0.9, dtype=torch.float64)},
    # Kept with probabilities 1 and 0.9: the second block is left out.
    "stochdepth": {"uniform": torch.tensor([0.5, 0.95, *[0.0] * 254])},
    # 32 and 64 channels become 32 and 56, then 24 and 48; images of 8 by 8 become 6 by 6, then 5 by 5.
    "gradaug": {"width": torch.tensor([0.9, 0.8], dtype=torch.float64), "size": torch.tensor([0.75, 0.625])},
}


def tiny_model() -> BlockModel:
    """Four blocks of 8×8 images, two of them residual, wide enough for a quarter of the channels to be fewer."""

    def body(inputs: int, outputs: int, stride: int) -> nn.Module:
        return nn.Sequential(
            Conv2d(inputs, 16, 3, stride=stride, bias=True), nn.Tanh(), Conv2d(16, outputs, 3, bias=True)
        )

    blocks = {
        "conv1": nn.Sequential(Conv2d(2, 32, 3, bias=True), nn.Tanh()),
        "layer1": Residual(body(32, 32, 1), activation=nn.Tanh()),
        "layer2": Residual(body(32, 64, 2), Conv2d(32, 64, 1, stride=2, bias=True), nn.Tanh()),
        "fc": Classifier(Linear(64, CLASSES, slim_outputs=False), pool=True),
    }
    return BlockModel(blocks, sample_shape=(2, 8, 8), classes=CLASSES, align_block=2)


@dataclass
class Scene:
    """A client about to take a step: its weights, what it was sent, what it keeps, its images, and the step's draws.

    The client's label counts are uneven, and it has no image of the last class.
    """

    model: BlockModel
    alpha: int
    moved: bool
    teaching: Tensor
    draws: dict[str, Tensor] = field(default_factory=dict)
    counts: Tensor = field(default_factory=lambda: torch.tensor([6, 3, 1, 0]))

    def __post_init__(self) -> None:
        draws = torch.Generator().manual_seed(5)
        size, depth = self.model.layout.parameter_count, self.model.depth

        def vector(scale: float) -> Tensor:
            return scale * torch.randn(size, generator=draws, dtype=torch.float64)

        self.received, self.previous, self.teacher = (vector(0.15) for _ in range(3))
        self.drift, self.momentum, self.control, self.client_control = (vector(0.2) for _ in range(4))
        # Blocks that were not sent are the client's own, and nothing may read what the server has in their place.
        self.own = sum(self.model.layout.before(depth - self.alpha))
        self.local = torch.cat([self.previous[: self.own], self.received[self.own :]])
        if self.moved:
            self.local = self.local + vector(0.05)
        self.x = torch.randn(6, 2, 8, 8, generator=draws, dtype=torch.float64)
        self.y = torch.tensor([0, 1, 2, 0, 0, 1])

    def logits(self, flat: Tensor) -> Tensor:
        return run(self.weights(flat), self.x)

    def weights(self, flat: Tensor) -> tuple[dict[str, Tensor], ...]:
        return self.model.layout.weights(flat)


def kept(channels: int, width: float) -> int:
    """The multiple of eight nearest to the share, raised where it is less than nine tenths of it."""
    nearest = max(8, 8 * int(channels * width / 8 + 0.5))
    return channels if width == 1 else nearest + 8 * (nearest < 0.9 * channels * width)


def conv(w: dict[str, Tensor], name: str, x: Tensor, width: float, stride: int = 1) -> Tensor:
    weight, bias = w[f"{name}.weight"], w[f"{name}.bias"]
    out = kept(len(bias), width)
    return F.conv2d(x, weight[:out, : x.shape[1]], bias[:out], stride, weight.shape[-1] // 2)


def block(w: dict[str, Tensor], index: int, x: Tensor, width: float = 1.0, keep: float = 1.0) -> Tensor:
    """One block of the tiny model, with the projection head as another block before the classifier."""
    if index == 0:
        return conv(w, "0", x, width).tanh()
    if index in {1, 2}:
        body = conv(w, "body.2", conv(w, "body.0", x, width, index).tanh(), width)
        return (keep * body + (x if index == 1 else conv(w, "shortcut", x, width, 2))).tanh()
    x = pooled(x)
    if "layer.0.weight" in w:
        hidden = (x @ w["layer.0.weight"].T + w["layer.0.bias"]).clamp(min=0)
        return hidden @ w["layer.2.weight"].T + w["layer.2.bias"]
    return x @ w["layer.weight"][:, : x.shape[1]].T + w["layer.bias"]


def pooled(x: Tensor) -> Tensor:
    return x.mean(dim=(2, 3)) if x.dim() == 4 else x


def run(ws: tuple[dict[str, Tensor], ...], x: Tensor, start: int = 0, stop: int | None = None, **how: float) -> Tensor:
    for index in range(start, len(ws) if stop is None else stop):
        x = block(ws[index], index, x, **how)
    return x


def ce(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.logsumexp(dim=1) - logits[torch.arange(len(labels)), labels]).mean()


def kl(target: Tensor, student: Tensor, temperature: float = 1.0) -> Tensor:
    """KL(softmax(target / T) ‖ softmax(student / T)), gradient to both."""
    p, q = (target / temperature).softmax(dim=1), (student / temperature).softmax(dim=1)
    return (p * (p / q).log()).sum(dim=1).mean()


def fedavg(s: Scene, theta: Tensor, **_: Any) -> Tensor:
    return ce(s.logits(theta), s.y)


def fedprox(s: Scene, theta: Tensor) -> Tensor:
    return fedavg(s, theta) + 0.01 / 2 * ((theta - s.received) ** 2).sum()


def feddyn(s: Scene, theta: Tensor) -> Tensor:
    """λ_k = -α h_k, with h_k the sum of the client's past deltas."""
    alpha, dual = 0.1, -0.1 * s.drift
    return fedavg(s, theta) - dual @ theta + alpha / 2 * ((theta - s.received) ** 2).sum()


def kd(s: Scene, theta: Tensor, gamma: float = 0.2, temperature: float = 1.0) -> Tensor:
    return (1 - gamma) * fedavg(s, theta) + gamma * kl(s.logits(s.received), s.logits(theta), temperature)


def fitnet(s: Scene, theta: Tensor) -> Tensor:
    """The tap before the classifier is the pooled vector."""
    gaps = []
    for stop in (1, 2, 3):
        ours, theirs = (run(s.weights(flat), s.x, stop=stop) for flat in (theta, s.received))
        if stop == 3:
            ours, theirs = pooled(ours), pooled(theirs)
        gaps.append(((ours - theirs) ** 2).mean())
    return fedavg(s, theta) + 0.2 * sum(gaps, torch.tensor(0.0)) / 3


def fedgkd(s: Scene, theta: Tensor, temperature: float = 1.0) -> Tensor:
    weight = 0.1 * temperature**2 * float(s.teaching)
    return fedavg(s, theta) + weight * kl(s.logits(s.teacher), s.logits(theta), temperature)


def ntd(s: Scene, theta: Tensor, beta: float = 0.3, temperature: float = 1.0, form: str = "convex") -> Tensor:
    def wrong(flat: Tensor) -> Tensor:
        return s.logits(flat)[F.one_hot(s.y, CLASSES) == 0].view(len(s.y), CLASSES - 1)

    gap = kl(wrong(s.received), wrong(theta), temperature)
    if form == "additive":
        return fedavg(s, theta) + beta * temperature**2 * gap
    return (1 - beta) * fedavg(s, theta) + beta * gap


def fedrs(s: Scene, theta: Tensor, absent_scale: float = 0.5, form: str = "absent") -> Tensor:
    """Counts (6, 3, 1, 0) are shares (1, 1/2, 1/6, 0) of the most frequent class."""
    shares = (1, 1 / 2, 1 / 6, 0) if form == "share" else (1, 1, 1, 0)
    return ce(s.logits(theta) * (absent_scale + (1 - absent_scale) * torch.tensor(shares, dtype=torch.float64)), s.y)


def moon(s: Scene, theta: Tensor) -> Tensor:
    z, near, far = (run(s.weights(flat), s.x, stop=4) for flat in (theta, s.received, s.previous))

    def cosine(other: Tensor) -> Tensor:
        return (z * other).sum(dim=1) / (z.square().sum(dim=1) * other.square().sum(dim=1)).sqrt()

    pair = torch.stack([cosine(near), cosine(far)], dim=1) / 0.5
    return fedavg(s, theta) + ce(pair, torch.zeros(len(z), dtype=torch.int64))


def classifiers(s: Scene, theta: Tensor, grid: int) -> list[Tensor]:
    """The outputs of DepthFL's three classifiers; the blocks 1 and 3 are the first two."""
    w, tap, outputs = s.weights(theta), s.x, []
    for place in range(3):
        tap = block(w[2 * place], place, tap)
        seen = pooled(tap)
        if place < 2:
            seen = tap.unflatten(3, (grid, -1)).unflatten(2, (grid, -1)).mean(dim=(3, 5)).flatten(1)
        outputs.append(seen @ w[2 * place + 1]["layer.weight"].T + w[2 * place + 1]["layer.bias"])
    return outputs


def depthfl(
    s: Scene, theta: Tensor, consistency: float = 1.0, ramp: float = 300, temperature: float = 1.0, grid: int = 4
) -> Tensor:
    """In the fifth round."""
    weight = consistency * math.exp(-5 * (1 - min(1, 5 / max(ramp, 5))) ** 2)
    z = classifiers(s, theta, grid)
    apart = sum(
        (kl(z[j].detach() / temperature, z[i] / temperature) for i in range(3) for j in range(3) if i != j),
        torch.tensor(0.0),
    )
    return sum((ce(each, s.y) for each in z), torch.tensor(0.0)) + weight * temperature**2 * apart / 2


def fedadc_plus(s: Scene, theta: Tensor, temperature: float = 1.0, teacher: str = "received", **_: Any) -> Tensor:
    """Eqs. 7-9 with λ = 0.35; counts (6, 3, 1, 0) are confidences (1, 1/2, 1/6, 0)."""
    taught = (s.logits(s.received if teacher == "received" else theta.detach()) / temperature).softmax(dim=1)
    student = (s.logits(theta) / temperature).log_softmax(dim=1)
    divergence = torch.tensor(0.0, dtype=torch.float64)
    for log_p, row, label in zip(student, taught.tolist(), s.y.tolist(), strict=True):
        target = [(1 - confidence) * p for confidence, p in zip((1, 1 / 2, 1 / 6, 0), row, strict=True)]
        target[label] = 1 - sum(p for c, p in enumerate(target) if c != label)
        # The target's own entropy is a constant.
        divergence = divergence - sum(p * log_p[c] for c, p in enumerate(target)) / len(s.y)
    return 0.65 * fedavg(s, theta) + 0.35 * temperature**2 * divergence


def hybrids(
    s: Scene,
    theta: Tensor,
    cuts: Sequence[int],
    lambda_1: float = 1.0,
    lambda_2: float = 1.0,
    temperature: float = 1.0,
    divisor: int = 3,
    direction: str = "local_to_global",
) -> Tensor:
    """The main path's cross-entropy, and the sum over paths of local blocks 1 … m, then received ones, divided."""
    one, other = s.weights(theta), s.weights(s.received)
    if direction == "global_to_local":
        one, other = other, one
    main, total = s.logits(theta), fedavg(s, theta)
    for m in cuts:
        hybrid = run((*one[:m], *other[m:]), s.x)
        total = total + (lambda_1 * ce(hybrid, s.y) + lambda_2 * kl(hybrid, main, temperature)) / divisor
    return total


def fedmlb(s: Scene, theta: Tensor, levels: Sequence[int] = (1, 2, 3), divisor: str = "all", **how: Any) -> Tensor:
    return hybrids(s, theta, levels, divisor=3 if divisor == "all" else len(levels), **how)


def fedbr(s: Scene, theta: Tensor, **how: Any) -> Tensor:
    """With α blocks received, paths turn to them before the last, the last two … the last α blocks."""
    cuts = {1: [3], 2: [3, 2], 4: [3, 2, 1]}[s.alpha]
    return hybrids(s, theta, cuts, divisor=len(cuts), **how)


def mixup(s: Scene, theta: Tensor) -> Tensor:
    share, partner = 0.3, [2, 0, 1, 4, 3, 5]
    logits = run(s.weights(theta), share * s.x + (1 - share) * s.x[partner])
    return share * ce(logits, s.y) + (1 - share) * ce(logits, s.y[partner])


def stochdepth(s: Scene, theta: Tensor) -> Tensor:
    ws = s.weights(theta)
    return ce(block(ws[3], 3, block(ws[2], 2, run(ws, s.x, stop=2), keep=0.0)), s.y)


def gradaug(s: Scene, theta: Tensor) -> Tensor:
    """μ = 1.75 for two sub-networks."""
    full, total = s.logits(theta).detach(), fedavg(s, theta)
    for width, side in ((0.9, 6), (0.8, 5)):
        small = F.interpolate(s.x, (side, side), mode="bilinear", align_corners=True)
        total = total + 1.75 * kl(full, run(s.weights(theta), small, width=width))
    return total


def fedalign(s: Scene, theta: Tensor, rescale: bool = True, detach_full: bool = True) -> Tensor:
    """The sub-block has 8 of 32 channels before it and 16 of 64 behind it."""
    ws = s.weights(theta)
    before = run(ws, s.x, stop=2)
    after, narrow = block(ws[2], 2, before), before.detach()[:, :8]
    if detach_full:
        before, after = before.detach(), after.detach()

    def norm(a: Tensor, b: Tensor) -> Tensor:
        product = torch.einsum("nahw,nbhw->nab", F.avg_pool2d(a, 2), b) / 16
        gram = product @ product.mT
        image = gram.sum(dim=2, keepdim=True)
        for _ in range(9):
            image = gram @ (image / image.norm(dim=1, keepdim=True))
        return image.square().sum(dim=(1, 2)) ** (1 / 4)

    sub = block(ws[2], 2, narrow, width=0.25)
    assert sub.shape[1] == 16
    gap = ((norm(narrow, sub) - norm(before, after)) ** 2).mean()
    plain = fedavg(s, theta)
    factor = float(plain.detach()) / float(gap.detach()) if rescale else 1.0
    return plain + 0.45 * factor * gap


HandLoss = Callable[..., Tensor]
HandStep = Callable[[Scene, HandLoss, LocalOptions], Tensor]


def decayed(s: Scene, loss: HandLoss, theta: Tensor, options: LocalOptions) -> Tensor:
    """The gradient at θ, shortened to the clipping norm, then with weight decay."""
    leaf = theta.clone().requires_grad_()
    (g,) = torch.autograd.grad(loss(s, leaf), leaf)
    if options.clip_norm is not None:
        g = g * min(1.0, options.clip_norm / (float(g.norm()) + 1e-6))
    return g + options.weight_decay * theta


def descend(s: Scene, loss: HandLoss, options: LocalOptions) -> Tensor:
    return s.local - LR * decayed(s, loss, s.local, options)


def corrected(s: Scene, loss: HandLoss, options: LocalOptions) -> Tensor:
    return s.local - LR * (decayed(s, loss, s.local, options) - s.client_control + s.control)


def look_ahead(s: Scene, loss: HandLoss, options: LocalOptions) -> Tensor:
    """FedADC, red: first along m̄ = β_l m / H, then down the gradient taken there."""
    ahead = s.local - LR * 0.8 * s.momentum / STEPS
    return ahead - LR * decayed(s, loss, ahead, options)


def pushed(s: Scene, loss: HandLoss, options: LocalOptions) -> Tensor:
    """FedADC, blue and (in its first, undamped step) double: gradient and m̄ at once."""
    return s.local - LR * (decayed(s, loss, s.local, options) + 0.8 * s.momentum / STEPS)


@dataclass(frozen=True)
class Case:
    """A method with options, what its loss and step are by hand, and how many blocks its client received."""

    name: str
    loss: HandLoss = fedavg
    step: HandStep = descend
    options: dict[str, Any] = field(default_factory=dict)
    alpha: int | None = None
    teaching: bool = True

    def __str__(self) -> str:
        said = {**self.options, **({} if self.alpha is None else {"alpha": self.alpha})}
        return "-".join([self.name, *(f"{value}" for value in said.values()), *([] if self.teaching else ["silent"])])


WEIGHTS = {"lambda_1": 0.3, "lambda_2": 2.0, "temperature": 3.0}

CASES = [
    *(Case(name) for name in ("fedavg", "fedavgm", "slowmo", "fedadam", "fedyogi", "fedadagrad", "fednova")),
    *(Case(name) for name in ("heterofl", "fedrolex", "fjord", "timelyfl")),  # of a client that trains the whole model
    Case("fedprox", fedprox),
    Case("feddyn", feddyn),
    Case("scaffold", step=corrected),
    Case("kd", kd),
    Case("kd", kd, options={"gamma": 0.4, "temperature": 2.0}),
    Case("fitnet", fitnet),
    Case("fedgkd", fedgkd),
    Case("fedgkd", fedgkd, teaching=False),
    Case("fedgkd", fedgkd, options={"temperature": 2.0}),
    Case("ntd", ntd),
    Case("ntd", ntd, options={"temperature": 3.0}),
    Case("ntd", ntd, options={"form": "additive", "beta": 0.8, "temperature": 3.0}),
    Case("fedrs", fedrs),
    Case("fedrs", fedrs, options={"form": "share", "absent_scale": 0.2}),
    Case("moon", moon),
    Case("depthfl", depthfl),
    Case("depthfl", depthfl, options={"consistency": 0.3, "ramp": 0, "temperature": 2.0, "grid": 1}),
    Case("fedadc", step=look_ahead),
    Case("fedadc", step=pushed, options={"variant": "blue"}),
    Case("fedadc", step=pushed, options={"variant": "double"}),
    Case("fedadc+", fedadc_plus, look_ahead),
    Case("fedadc+", fedadc_plus, pushed, options={"variant": "blue"}),
    Case("fedadc+", fedadc_plus, look_ahead, options={"temperature": 2.0}),
    Case("fedadc+", fedadc_plus, look_ahead, options={"temperature": 2.0, "teacher": "local"}),
    Case("fedmlb", fedmlb),
    Case("fedmlb", fedmlb, options=WEIGHTS),
    Case("fedmlb", fedmlb, options={"levels": (1, 3)}),
    Case("fedmlb", fedmlb, options={"levels": (1, 3), "divisor": "levels"}),
    Case("fedmlb", fedmlb, options={"direction": "global_to_local"}),
    *(Case("fedbr", fedbr, alpha=alpha) for alpha in (1, 2, 4)),
    Case("fedbr", fedbr, options=WEIGHTS, alpha=2),
    Case("mixup", mixup),
    Case("stochdepth", stochdepth),
    Case("gradaug", gradaug),
    Case("fedalign", fedalign),
    Case("fedalign", fedalign, options={"rescale": False}),
    Case("fedalign", fedalign, options={"detach_full": False}),
]

ONLY_THE_SERVER_DIFFERS = {"fedavg", "fedavgm", "slowmo", "fedadam", "fedyogi", "fedadagrad", "fednova"}
ONLY_THE_SERVER_DIFFERS |= {"heterofl", "fedrolex", "fjord", "timelyfl"}  # for a client that trains the whole model
FLAT_WHERE_TRAINING_STARTS = {"fedprox", "fitnet", "additive"}
"""Their terms are distances from what was received: no slope before the client has moved."""


def scene_of(case: Case, method: Method, moved: bool) -> Scene:
    model = method.objective.adapt(tiny_model())
    alpha = model.depth if case.alpha is None else case.alpha
    teaching = torch.tensor([float(case.teaching)], dtype=torch.float64)
    return Scene(model, alpha, moved, teaching, DRAWS.get(case.name, {}))


def taken(method: Method, s: Scene, options: LocalOptions) -> Tensor:
    """The step that the package takes."""
    sent = s.received.clone()
    sent[: s.own] = torch.nan
    frozen = {"received": s.weights(sent), "previous": s.weights(s.previous)}
    vectors = {name: getattr(s, name) for name in method.objective.vectors | method.rule.vectors}
    context = Context(s.model, frozen, vectors, {"label_counts": s.counts, "round": torch.tensor(4)}, s.alpha, s.draws)
    memory = method.rule.begin(s.local, vectors, options, STEPS)
    buffers, batch = s.local.new_zeros(0), Batch(s.x, s.y)
    start = s.local.clone()
    return local_step(method.objective, method.rule, start, buffers, batch, context, memory, options, LR)[0]


@pytest.mark.parametrize("moved", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("options", [PLAIN, HELD_BACK], ids=["plain", "clipped"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_step_is_the_one_that_the_formulas_give(case: Case, options: LocalOptions, moved: bool) -> None:
    method = build_method({"method": case.name, **case.options}, options)
    s = scene_of(case, method, moved)
    wanted = case.step(s, partial(case.loss, **case.options), options)
    torch.testing.assert_close(taken(method, s, options), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("moved", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_step_is_fedavg_s_exactly_where_the_method_leaves_the_client_alone(case: Case, moved: bool) -> None:
    method = build_method({"method": case.name, **case.options}, PLAIN)
    s = scene_of(case, method, moved)
    apart = float((taken(method, s, PLAIN) - taken(build_method("fedavg", PLAIN), s, PLAIN)).abs().max())
    alone = case.name in ONLY_THE_SERVER_DIFFERS or not case.teaching
    alone = alone or (not moved and bool(FLAT_WHERE_TRAINING_STARTS & {case.name, case.options.get("form")}))
    # A term without slope still changes the order in which autograd adds.
    assert apart < 1e-14 if alone else apart > 1e-6


def test_no_method_is_left_out() -> None:
    assert {case.name for case in CASES} == set(METHODS.names()) - BASELINES
