"""Methods and recipes: named combinations of objective, local rule, server update, payload and client state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgefl.methods.codecs.choice import Codecs
from edgefl.methods.parts.client_state import ClientState
from edgefl.methods.parts.common_finish import CommonFinish
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import LocalRule, Sgd
from edgefl.methods.parts.objective import Objective
from edgefl.methods.parts.payload import Payload
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
        """Check the parts when the recipe is defined, not when it is used.

        Raises:
            TypeError: a part has the wrong type.
        """
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


METHODS: Registry[Recipe] = Registry(
    "method", package="edgefl.methods", group="edgefl.methods", check=object_of(Recipe)
)
