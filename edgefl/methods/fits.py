"""What the parts of a method need, and what they take from each other; the words are in :mod:`edgefl.methods.needs`."""

from edgefl.methods.needs import Need, Requirement
from edgefl.methods.recipe import Method


def requirements_of(method: Method) -> list[Requirement]:
    """The parts of a method with their needs; each class declares its own as ``needs``."""
    label, server = f"method '{method.label}'", method.server
    controls: set[Need] = {"whole model"} if server.broadcasts or server.client_state() is not None else set()
    controls |= {"server start"} if server.client_state() is not None else set()
    own_rule: set[Need] = set() if method.chosen_rule else {"sgd"}
    parts = [
        Requirement(type(method.objective).__name__, method.objective.needs),
        Requirement(f"the local rule of {label}", method.rule.needs | own_rule, "local"),
        Requirement(f"server update '{server.registered_name}'", server.needs | controls, "server"),
        Requirement(f"the payload of {label}", method.payload.needs),
    ]
    if server.reads:
        alike: set[Need] = {"each update", "whole model", "one size", "server start", "exact uplink", "plain traffic"}
        parts.insert(0, Requirement("the average of the optimizers' states", frozenset(alike), "local.optimizer"))
    if method.submodels is not None:
        parts.append(Requirement(f"training at several capacities in {label}", method.submodels.needs))
    if method.objective.trains_last:
        parts.append(Requirement(f"training of the last blocks in {label}", frozenset({"plain traffic"}), "codec"))
    if method.overlap:
        parts.append(Requirement("overlap", frozenset({"early cohort"}), "overlap"))
    if method.local.common_finish is not None:
        finish = frozenset[Need]({"rounds", "step seconds"})
        parts.append(Requirement(f"the common finish of {label}", finish, "local.common_finish"))
    if method.state is not None or method.payload.sends_blocks:
        parts.append(Requirement(f"what clients of {label} keep", frozenset({"one size"})))
    return parts


def taken_by(method: Method) -> dict[Need, str]:
    """What a method's own parts and options take."""
    takes, codecs, label = method.rule.takes(), method.codecs, f"method '{method.label}'"
    if method.submodels is not None or method.objective.trains_last:
        takes["whole model"] = takes["one size"] = f"clients of {label} train parts of the model of different sizes"
    if method.objective.evaluates_clients:
        takes["whole model"] = f"clients of {label} send nothing"
    if method.payload.sends_blocks:
        takes["server start"] = f"{label} sends only some blocks"
    if (kind := method.local.optimizer.kind) != "sgd":
        takes["sgd"] = f"local.optimizer is {kind}; expected local: {{optimizer: sgd}}"
    if method.objective.proximal_weight is None:
        name = type(method.objective).__name__
        takes["known steps"] = f"{name} reads the received model, and has no `proximal_weight`"
    if method.local.lr_of_steps(0, 1):
        takes["round's rate"] = "local.lr changes over steps; expected over: rounds"
    if method.local.momentum:
        takes["no momentum"] = f"local.momentum is {method.local.momentum:g}; expected local: {{momentum: 0}}"
    if not codecs.up.exact:
        takes["exact uplink"] = "the codec of the uplink rounds"
    if not (codecs.up.exact and codecs.down.exact):
        takes["plain traffic"] = "a codec encodes them; expected codec: {up: none, down: none}"
    return takes
