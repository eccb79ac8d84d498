"""Methods: recipes made of objectives, local rules, server updates, payloads and codecs; the names for authors."""

import importlib
from typing import Any

_OF = {
    "recipe": ("Recipe",),
    "build": ("build_method",),
    "fedavg": ("CrossEntropy", "Mean"),
    "fedprox": ("parameter_vector",),
    "parts.objective": ("Batch", "Context", "Loss", "Objective"),
    "parts.distillation": ("kl_divergence",),
    "parts.local_options": ("LocalOptions",),
    "parts.local_step": ("LocalRule", "Sgd", "local_step"),
    "parts.client_state": ("ClientState",),
    "parts.server": ("Arrival", "Arrivals", "RoundFacts", "ServerSide", "ServerUpdate", "weighted_sum"),
    "parts.payload": ("Downlink", "ModelSizes", "Part", "Payload"),
    "parts.submodels": ("SubModels",),
}
_HOME = {name: f"edgefl.methods.{module}" for module, names in _OF.items() for name in names}
"""The module of each public name. It is imported at the first use, because importing torch takes a second."""

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'edgefl.methods' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
