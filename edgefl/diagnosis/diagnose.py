"""``edgefl diagnose``: the curvature of the loss at the models that a run kept."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vjp

from edgefl.data.batches import job_batches
from edgefl.data.federated import load_federated
from edgefl.errors import UserError, nearest
from edgefl.experiment.final_models import read_client_models, read_model
from edgefl.experiment.inputs import allow_code
from edgefl.experiment.wiring import recipe_of, skeleton
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.objective import Batch
from edgefl.models.block_model import BlockModel
from edgefl.models.mode import using
from edgefl.randomness import generator
from edgefl.record import RunPaths, SeedPaths
from edgefl.record.summary import read_run
from edgefl.scenario import Scenario, load_scenario
from edgefl.torch_settings import neutral_torch
from edgefl.training.accelerator import room_for_data
from edgefl.training.engine_spec import choose_device, exact_arithmetic
from edgefl.training.evaluation import PLAIN, outputs_of

ITERATIONS = 100
"""Maximum number of power iterations and of Rademacher probes, as in FedAlign's code."""
TOLERANCE = 1e-3
"""Relative change of the eigenvalue, or of the mean trace, at which both stop."""


Grid = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Curvature:
    """The Hessian of the mean cross-entropy with respect to a model's parameters, never formed as a matrix.

    ``vector`` has parameters and buffers ``[size]``; results have its type. Batches of equal size have equal weight;
    ``mode`` are the differences from a plain evaluation.
    """

    model: BlockModel
    vector: Tensor
    batches: Sequence[Batch]
    mode: Mapping[str, Any]

    @property
    def parameters(self) -> Tensor:
        """The point at which derivatives are computed ``[parameter_count]``."""
        return self.model.layout.split(self.vector)[0]

    def loss(self, parameters: Tensor) -> float:
        """The mean cross-entropy at other parameters, with the same buffers."""
        with torch.no_grad(), using(**{**PLAIN, **self.mode}):
            losses = [float(self._batch_loss(batch)(parameters)) for batch in self.batches]
        return float(np.mean(losses))

    def product(self, direction: Tensor) -> Tensor:
        """H v for a direction ``[parameter_count]``, by differentiating the gradient backwards (H is symmetric)."""
        total = torch.zeros_like(direction)
        with using(**{**PLAIN, **self.mode}):
            for batch in self.batches:
                pull = vjp(grad(self._batch_loss(batch)), self.parameters)[1]
                total += pull(direction)[0]
        return total / len(self.batches)

    def top_eigenvalue(self, seed: int = 0) -> float:
        """The eigenvalue of largest magnitude, by power iteration (Mendieta et al. 2022, Table 1)."""
        direction = self._draw(generator(seed, "power iteration").standard_normal(len(self.parameters)))
        direction /= direction.norm()
        last = None
        for _ in range(ITERATIONS):
            image = self.product(direction)
            value = float(direction.double() @ image.double())
            norm = image.norm()
            if not float(norm):
                return 0.0
            direction = image / norm
            if last is not None and abs(value - last) <= TOLERANCE * (abs(last) + 1e-6):
                return value
            last = value
        return value

    def diagonal(self, seed: int = 0) -> Tensor:
        """Hutchinson's mean of v ⊙ H v ``[parameter_count]`` over Rademacher probes v, until the trace converges.

        The probes are the same for all models of one seed, so that they do not cause differences between models.
        """
        total = torch.zeros_like(self.parameters)
        trace = 0.0
        for probe in range(ITERATIONS):
            signs = generator(seed, "hutchinson", probe).integers(0, 2, size=len(total))
            direction = self._draw(2.0 * signs - 1.0)
            total += direction * self.product(direction)
            mean = _trace(total) / (probe + 1)
            if probe and abs(mean - trace) <= TOLERANCE * (abs(trace) + 1e-6):
                break
            trace = mean
        return total / (probe + 1)

    def by_tensor(self, diagonal: Tensor) -> Tensor:
        """A diagonal ``[parameter_count]`` summed over each parameter tensor ``[tensors]``."""
        return torch.stack([diagonal[e.start : e.start + e.numel].sum() for e in self.model.layout.parameters])

    def top_plane(self, seed: int = 0) -> tuple[Tensor, Tensor]:
        """The two largest eigenvalues ``[2]``, descending, and their orthonormal eigenvectors ``[2, parameter_count]``.

        Computed by scipy's Lanczos method on products with H.

        Raises:
            ValueError: the model has fewer than three parameters.
        """
        from scipy.sparse.linalg import LinearOperator, eigsh

        size = len(self.parameters)
        if size < 3:
            raise ValueError(f"expected a model with at least three parameters, found {size}")

        def product(direction: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            return self.product(self._draw(direction.reshape(-1))).double().cpu().numpy()

        start = generator(seed, "lanczos").standard_normal(size)
        operator = LinearOperator((size, size), matvec=product, dtype=np.float64)
        values, vectors = eigsh(operator, k=2, which="LA", v0=start, tol=TOLERANCE, ncv=min(size, 12))
        return self._draw(values[::-1].copy()), self._draw(vectors.T[::-1].copy())

    def _draw(self, numbers: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(numbers).to(self.vector.device, self.vector.dtype)

    def _batch_loss(self, batch: Batch) -> Callable[[Tensor], Tensor]:
        layout = self.model.layout
        buffers = layout.split(self.vector)[1]
        inputs = batch.inputs.to(self.vector.dtype) if batch.inputs.is_floating_point() else batch.inputs

        def loss(parameters: Tensor) -> Tensor:
            outputs = outputs_of(self.model, layout.weights(parameters, buffers), inputs, 0)
            return self.model.task.mean_loss(outputs, batch.labels)

        return loss


@dataclass(frozen=True, eq=False)
class Landscape:
    """The loss at θ + x v_1 + y v_2, with unit eigenvectors v_1 and v_2 of ``eigenvalues``.

    ``steps`` are the values of x and of y ``[n]``; row i of ``losses [n, n]`` has y = ``steps[i]``.
    """

    steps: Grid
    losses: Grid
    eigenvalues: tuple[float, float]


def landscape(curvature: Curvature, *, radius: float = 1.0, points: int = 21, seed: int = 0) -> Landscape:
    """The loss on a square around a model, to ``radius`` in the norm of parameters, with ``points`` (odd) a side."""
    values, plane = curvature.top_plane(seed)
    steps = np.linspace(-radius, radius, points)
    centre = curvature.parameters
    losses = [[curvature.loss(centre + float(x) * plane[0] + float(y) * plane[1]) for x in steps] for y in steps]
    return Landscape(steps, np.array(losses), (float(values[0]), float(values[1])))


BATCH = 64
"""Images in a batch, as in FedAlign's code."""
_ALL = -1
"""Replaces a client's number in the random key of batches that are drawn from all clients' images."""


@dataclass(frozen=True)
class Diagnosis:
    """The curvature for one method and seed."""

    label: str
    seed: int
    lambda_max: float  # the Hessian's eigenvalue of largest magnitude at the final model
    trace: float  # Hutchinson's estimate of the Hessian's trace there
    # for each local model of the last round its client, lambda_max and trace; empty unless the run kept them
    # (keep_models: clients)
    clients: list[dict[str, Any]] = field(default_factory=list)
    # by_tensor, by_parameter: H_N and H_D over these models under both interpretations of Diag(H): one number for
    # each parameter tensor (the authors' code), or one for each parameter (Eqs. 3-4 as printed); None with fewer than
    # two of them.
    by_tensor: dict[str, float] | None = None
    by_parameter: dict[str, float] | None = None
    landscape: Landscape | None = None  # the loss on the plane of the two top eigenvectors, if requested

    def as_data(self) -> dict[str, Any]:
        """As JSON data, without the landscape."""
        return {name: value for name, value in vars(self).items() if name != "landscape"}


def diagnose(
    run: Path,
    *,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    batches: int = 10,
    device: str = "auto",
    plane: bool = False,
    trust: bool = False,
) -> Iterator[Diagnosis]:
    """Diagnose the models of a finished run, one method and seed after another; ``plane`` adds the landscape.

    The loss is cross-entropy on ``batches`` batches of 64 images of all clients' training data, augmented as in
    training, with the model in evaluation mode.
    """
    read = read_run(run)[1]
    summary = read.methods
    scenario = load_scenario(RunPaths(run).scenario, run_code=False)
    scenario = allow_code(scenario, read.inputs, run, trust=trust)
    for label in methods or ():
        if label not in summary:
            raise UserError(f"the run has no method labelled '{label}'; {nearest(label, summary)}")
    every = [(label, entry.seed) for label, entries in summary.items() for entry in entries]
    chosen = [of for of in every if (not methods or of[0] in methods) and (not seeds or of[1] in seeds)]
    if not chosen:
        raise UserError(f"the run has no seed {', '.join(map(str, seeds or ()))}", file=str(run))
    for seed, runs in groupby(sorted(chosen, key=itemgetter(1)), key=itemgetter(1)):
        loaded = _batches(scenario, seed, device, batches)
        for label, _ in runs:
            yield _diagnose(RunPaths(run).of(label, seed), scenario, label, seed, loaded, plane=plane)


@neutral_torch()
def _batches(scenario: Scenario, seed: int, device: str, count: int) -> list[Batch]:
    place = choose_device(device)
    data = load_federated(scenario.data, seed, place, scenario.evaluation.split, room=room_for_data(place))
    options, images = LocalOptions(batch=BATCH, drop_last=True), np.sort(data.shards.indices)
    plan = job_batches(data.train, scenario.data.augment, images, options, count, seed=seed, client=_ALL, dispatch=0)
    return [plan.step(step) for step in range(len(plan))]


@neutral_torch()
def _diagnose(
    paths: SeedPaths, scenario: Scenario, label: str, seed: int, batches: list[Batch], *, plane: bool
) -> Diagnosis:
    objective = recipe_of(scenario, scenario.method(label)).objective
    device = batches[0].inputs.device
    model = objective.adapt(skeleton(scenario)).to(device)
    mode = objective.evaluation_mode(model)

    def curvature(vector: Tensor) -> Curvature:
        return Curvature(model, vector.to(device), batches, mode)

    final = curvature(read_model(paths.final_model, model))
    kept = paths.client_models
    local = read_client_models(kept, model) if kept.is_file() else {}
    with exact_arithmetic(device):
        clients, by_tensor, by_parameter = [], [], []
        for client, vector in local.items():
            here = curvature(vector)
            diagonal = here.diagonal(seed)
            clients.append({"client": client, "lambda_max": here.top_eigenvalue(seed), "trace": _trace(diagonal)})
            by_tensor.append(here.by_tensor(diagonal))
            by_parameter.append(diagonal)
        figures = final.top_eigenvalue(seed), _trace(final.diagonal(seed))
        differ = dissimilarity(by_tensor), dissimilarity(by_parameter)
        return Diagnosis(label, seed, *figures, clients, *differ, landscape(final, seed=seed) if plane else None)


def _trace(diagonal: Tensor) -> float:
    return float(diagonal.double().sum())


def dissimilarity(diagonals: Sequence[Tensor]) -> dict[str, float] | None:
    """FedAlign's H_N and H_D of K diagonals D_k, vectors of one length (Mendieta et al. 2022, Eqs. 3-4).

    H_N is the mean of ‖D_k - D_j‖, H_D the mean cosine of D_k and D_j. Both are means over all pairs of clients,
    including each client with itself, as in the authors' code; ``h_n_pairs`` and ``h_d_pairs`` are over true pairs.

    >>> dissimilarity([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])])["h_d"]
    0.5

    Returns:
        The four means, or ``None`` with fewer than two diagonals.
    """
    count = len(diagonals)
    if count < 2:
        return None
    rows = torch.stack([each.double() for each in diagonals])
    distances = (rows[:, None] - rows[None, :]).norm(dim=-1)
    lengths = rows.norm(dim=-1).clamp(min=1e-300)
    cosines = (rows @ rows.T) / (lengths[:, None] * lengths[None, :])
    norm, direction = float(distances.mean()), float(cosines.mean())
    return {
        "h_n": norm,
        "h_d": direction,
        "h_n_pairs": count / (count - 1) * norm,
        "h_d_pairs": (count * direction - 1) / (count - 1),
    }
