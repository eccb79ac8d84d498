"""``edgefl diagnose``: the curvature of the loss at the models that a run kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgefl.data.batches import job_batches
from edgefl.data.federated import load_federated
from edgefl.diagnosis.curvature import Curvature, Landscape, landscape
from edgefl.errors import UserError, nearest
from edgefl.experiment.directory import read_run_summary
from edgefl.experiment.final_models import read_client_models, read_model
from edgefl.experiment.inputs import allow_code
from edgefl.experiment.wiring import recipe_of, skeleton
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.objective import Batch
from edgefl.record import RunPaths, SeedPaths
from edgefl.scenario import Scenario, load_scenario
from edgefl.torch_settings import neutral_torch
from edgefl.training.accelerator import room_for_data
from edgefl.training.device import choose_device, exact_arithmetic

BATCH = 64
"""Images in a batch, as in FedAlign's code."""
_ALL = -1
"""Replaces a client's number in the random key of batches that are drawn from all clients' images."""


@dataclass(frozen=True)
class Diagnosis:
    """The curvature for one method and seed."""

    # label, seed: the model's method and seed
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
    read = read_run_summary(run)
    summary = read.methods
    scenario = load_scenario(RunPaths(run).scenario, run_code=False)
    allow_code(scenario, read.inputs, run, trust=trust)
    for label in methods or ():
        if label not in summary:
            raise UserError(f"the run has no method labelled '{label}'; {nearest(label, summary)}")
    chosen = [
        (label, entry.seed)
        for label, entries in summary.items()
        for entry in entries
        if (not methods or label in methods) and (not seeds or entry.seed in seeds)
    ]
    if not chosen:
        raise UserError(f"the run has no seed {', '.join(map(str, seeds or ()))}", file=str(run))
    loaded: tuple[int, list[Batch]] | None = None
    for label, seed in sorted(chosen, key=lambda each: each[1]):
        if loaded is None or loaded[0] != seed:
            loaded = (seed, _batches(scenario, seed, device, batches))
        yield _diagnose(RunPaths(run).of(label, seed), scenario, label, seed, loaded[1], plane=plane)


@neutral_torch()
def _batches(scenario: Scenario, seed: int, device: str, count: int) -> list[Batch]:
    place = choose_device(device)
    data = load_federated(scenario.data, seed, place, scenario.evaluation.split, room=room_for_data(place))
    plan = job_batches(
        data.train,
        scenario.data.augment,
        np.sort(data.shards.indices),
        LocalOptions(batch=BATCH, drop_last=True),
        count,
        seed=seed,
        client=_ALL,
        dispatch=0,
    )
    return [plan.step(step) for step in range(len(plan))]


@neutral_torch()
def _diagnose(
    paths: SeedPaths, scenario: Scenario, label: str, seed: int, batches: list[Batch], *, plane: bool
) -> Diagnosis:
    objective = recipe_of(scenario, scenario.method(label)).objective
    device = batches[0].inputs.device
    with neutral_torch():
        model = objective.adapt(skeleton(scenario)).to(device)
        mode = objective.evaluation_mode(model)

    def curvature(vector: Tensor) -> Curvature:
        return Curvature(model, vector.to(device), batches, mode)

    final = curvature(read_model(paths.final_model, model.layout))
    kept = paths.client_models
    local = read_client_models(kept, model.layout) if kept.is_file() else {}
    with exact_arithmetic(device):
        clients, by_tensor, by_parameter = [], [], []
        for client, vector in local.items():
            here = curvature(vector)
            diagonal = here.diagonal(seed)
            clients.append({"client": client, "lambda_max": here.top_eigenvalue(seed), "trace": diagonal.trace})
            by_tensor.append(here.by_tensor(diagonal.values))
            by_parameter.append(diagonal.values)
        return Diagnosis(
            label=label,
            seed=seed,
            lambda_max=final.top_eigenvalue(seed),
            trace=final.diagonal(seed).trace,
            clients=clients,
            by_tensor=dissimilarity(by_tensor),
            by_parameter=dissimilarity(by_parameter),
            landscape=landscape(final, seed=seed) if plane else None,
        )


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
