"""Methods and recipes: named combinations of objective, local rule, server update, payload and client state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgefl.methods.codecs.choice import Codecs
from edgefl.methods.fits import Need, Requirement
from edgefl.methods.parts.client_state import ClientState
from edgefl.methods.parts.common_finish import CommonFinish
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import LocalRule, Sgd
from edgefl.methods.parts.objective import Objective
from edgefl.methods.parts.payload import Payload
from edgefl.methods.parts.private import Private
from edgefl.methods.parts.server import ServerUpdate, Weighting
from edgefl.methods.parts.submodels import SubModels
from edgefl.registry import Registry, object_of


@dataclass(frozen=True, eq=False)
class Recipe:
    """The parts of a method, before a scenario sets options."""

    summary: str  # one line for edgefl methods
    paper: str  # the paper that defines it, with equation or algorithm
    # objective, rule, payload: classes whose fields are the method's options in a scenario
    objective: type[Objective]
    server: ServerUpdate  # the default server update; a scenario may choose another one that fits
    rule: type[LocalRule] = Sgd  # Sgd: the scenario's local.optimizer
    payload: type[Payload] = Payload
    state: ClientState | None = None  # the client state, or None for stateless clients
    weighting: Weighting = "samples"
    # the class that defines capacity levels, for methods whose clients train parts of the model
    submodels: type[SubModels] | None = None
    common_finish: CommonFinish | None = None
    scheduler: str | None = None  # default kind of block scheduler for methods with a partial downlink, else None
    # option values that differ from the parts' own defaults
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the types of the parts when the recipe is defined, not when it is used."""
        parts = {"objective": Objective, "rule": LocalRule, "payload": Payload, "submodels": SubModels}
        for name, base in parts.items():
            part = getattr(self, name)
            if not (isinstance(part, type) and issubclass(part, base)) and (name, part) != ("submodels", None):
                raise TypeError(f"{name}: expected a class derived from {base.__name__}, found {part!r}")
        if not isinstance(self.server, ServerUpdate):
            raise TypeError(f"server: expected a server update, found {self.server!r}")


@dataclass(frozen=True)
class Method:
    """A recipe with its options set: everything that training needs from a method.

    ``label`` is its name in the scenario (``as``), unique there; ``local`` is the scenario's ``training.local`` with
    the method's own overrides merged in; ``overlap``: parts that are ready early are sent during the previous round.
    """

    name: str
    label: str
    objective: Objective
    rule: LocalRule
    server: ServerUpdate
    payload: Payload
    state: ClientState | None
    weighting: Weighting
    local: LocalOptions
    overlap: bool = False
    codecs: Codecs = Codecs()  # noqa: RUF009  (frozen)
    submodels: SubModels | None = None
    chosen_rule: bool = True  # the rule is local.optimizer, not the method's own
    private: Private | None = None  # what protects its updates

    def parts(self) -> list[Requirement]:
        """Its parts with their needs; each class declares its own as ``needs``."""
        label, server = f"method '{self.label}'", self.server
        controls: set[Need] = {"whole model"} if server.broadcasts or server.client_state() is not None else set()
        controls |= {"server start"} if server.client_state() is not None else set()
        controls |= set() if server.is_mean else {"server"}
        own_rule: set[Need] = set() if self.chosen_rule else {"sgd"}
        parts = [
            Requirement(type(self.objective).__name__, self.objective.needs),
            Requirement(f"the local rule of {label}", self.rule.needs | own_rule, "local"),
            Requirement(f"server update '{server.registered_name}'", server.needs | controls, "server"),
            Requirement(f"the payload of {label}", self.payload.needs),
        ]
        if server.reads:
            alike: tuple[Need, ...] = "each update", "whole model", "one size", "server start", "exact uplink"
            needs = frozenset[Need]({*alike, "plain traffic"})
            parts.insert(0, Requirement("the average of the optimizers' states", needs, "local.optimizer"))
        if self.submodels is not None:
            parts.append(Requirement(f"training at several capacities in {label}", self.submodels.needs))
        if self.objective.trains_last:
            parts.append(Requirement(f"training of the last blocks in {label}", frozenset({"plain traffic"}), "codec"))
        if self.overlap:
            parts.append(Requirement("overlap", frozenset({"early cohort"}), "overlap"))
        if self.local.common_finish is not None:
            finish = frozenset[Need]({"rounds", "step seconds"})
            parts.append(Requirement(f"the common finish of {label}", finish, "local.common_finish"))
        if self.state is not None or self.payload.sends_blocks:
            parts.append(Requirement(f"what clients of {label} keep", frozenset({"one size"})))
        return parts

    def takes(self) -> dict[Need, str]:
        """What its own parts and options take from its parts."""
        takes, codecs, label = self.rule.takes(), self.codecs, f"method '{self.label}'"
        if self.submodels is not None or self.objective.trains_last:
            takes["whole model"] = takes["one size"] = f"clients of {label} train parts of the model of different sizes"
        if self.objective.evaluates_clients:
            takes["whole model"] = f"clients of {label} send nothing"
        if self.payload.sends_blocks:
            takes["server start"] = f"{label} sends only some blocks"
        if (kind := self.local.optimizer.kind) != "sgd":
            takes["sgd"] = f"local.optimizer is {kind}; expected local: {{optimizer: sgd}}"
        if self.objective.proximal_weight is None:
            name = type(self.objective).__name__
            takes["known steps"] = f"{name} reads the received model, and has no `proximal_weight`"
        if type(self.objective).draw is not Objective.draw:
            takes["single examples"] = f"{type(self.objective).__name__} draws for whole batches"
        if self.local.accumulate > 1:
            takes["single examples"] = "local.accumulate adds batches; expected local: {accumulate: 1}"
        if self.local.lr_of_steps(0, 1):
            takes["round's rate"] = "local.lr changes over steps; expected over: rounds"
        if self.local.momentum:
            takes["no momentum"] = f"local.momentum is {self.local.momentum:g}; expected local: {{momentum: 0}}"
        if not codecs.up.exact:
            takes["exact uplink"] = "the codec of the uplink rounds"
        if not codecs.down.exact:
            takes["exact downlink"] = "the codec of the downlink rounds"
        if not (codecs.up.exact and codecs.down.exact):
            takes["plain traffic"] = "a codec encodes them; expected codec: {up: none, down: none}"
        return takes


METHODS: Registry[Recipe] = Registry(
    "method", package="edgefl.methods", group="edgefl.methods", check=object_of(Recipe)
)
