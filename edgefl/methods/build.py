"""Build a method from a scenario's entry, pass options to its parts, and check that the parts fit together."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, Field, PlainValidator, create_model

from edgefl.errors import UserError, WrongAnswer, nearest
from edgefl.methods.codecs.choice import Codecs, codec_state
from edgefl.methods.fits import check
from edgefl.methods.parts.averaged_state import AveragedState, PayloadWithState
from edgefl.methods.parts.broadcasts import Broadcasts
from edgefl.methods.parts.client_state import together
from edgefl.methods.parts.common_finish import CommonFinish
from edgefl.methods.parts.local_options import LocalOptions
from edgefl.methods.parts.local_step import Sgd
from edgefl.methods.parts.objective import CLIENT_FACTS
from edgefl.methods.parts.optimizers import Optimizer, OwnOptimizer
from edgefl.methods.parts.payload import ModelSizes
from edgefl.methods.parts.rates import Rate, lasting
from edgefl.methods.parts.server import SERVER_UPDATES, ServerUpdate, Weighting
from edgefl.methods.recipe import METHODS, Method, Recipe
from edgefl.options import Component, Options
from edgefl.registry import chosen_part, tagged
from edgefl.user_code import UserCode
from edgefl.validation import as_validator, validated

RESERVED = frozenset({"method", "python", "as", "local", "server", "weighting", "overlap", "codec", "scheduler"})
"""Reserved keys of an entry, which must not be names of options."""


def _parts(recipe: Recipe) -> list[type[Component]]:
    levels = [] if recipe.submodels is None else [recipe.submodels]
    return [recipe.objective, recipe.rule, type(recipe.server), recipe.payload, *levels]


def _defaults(recipe: Recipe) -> dict[str, Any]:
    return {**recipe.server.model_dump(exclude_unset=True), **recipe.defaults}


def server_update(value: Any) -> ServerUpdate:
    """A server update from its name, or from a mapping with ``kind`` and options.

    >>> server_update({"kind": "fedavgm", "beta": 0.6})
    FedAvgM(beta=0.6, server_lr=1.0)
    """
    if isinstance(value, Mapping) and "flower" in value:
        names = ", ".join(SERVER_UPDATES.names())
        raise UserError(f"strategies of Flower run in a Flower app only; expected kind: {names}", field="flower")
    return chosen_part(SERVER_UPDATES, value)


def _clients_too(server: type[ServerUpdate]) -> set[str]:
    """Options of a server update that are set next to ``method``, because the clients of its method also have them."""
    own = [recipe for _, recipe in METHODS if type(recipe.server) is server]
    return {field for recipe in own for field in shared_options(recipe) & set(server.model_fields)}


def shared_options(recipe: Recipe) -> set[str]:
    """Options of a recipe's parts other than its server update."""
    own = type(recipe.server)
    return {field for part in _parts(recipe) if part is not own for field in part.model_fields}


@cache
def _server_schema() -> dict[str, Any]:
    def schema(name: str, part: type[ServerUpdate]) -> dict[str, Any]:
        described, of_clients = part.model_json_schema(), _clients_too(part)
        options = {key: option for key, option in described.get("properties", {}).items() if key not in of_clients}
        return tagged({**described, "properties": options}, "kind", name, part)

    described = SERVER_UPDATES.of_each(schema)
    return {"anyOf": [{"enum": list(described)}, *described.values()]}


def recipe_in(entry: Mapping[str, Any]) -> Recipe:
    """The recipe of an entry: ``method`` is the name of one, ``python`` an object in a Python file."""
    if "python" not in entry:
        return METHODS[str(entry["method"])]
    recipe: Recipe = UserCode.of(entry["python"]).load(kind=Recipe)
    return recipe


@cache
def method_model(recipe: Recipe) -> type[BaseModel]:
    """The model of the options in an entry of a scenario's ``methods``, for validation and JSON schema.

    Its fields are the keys that every method has and the options of the method's parts, with the method's defaults. The
    block scheduler is not included, because it belongs to another package.

    >>> sorted(set(method_model(METHODS["fedprox"]).model_fields) - {"label", "local", "server", "weighting"})
    ['codec', 'mu', 'overlap', 'server_lr']
    """
    fields: dict[str, Any] = {
        "label": (str | None, Field(default=None, alias="as", min_length=1, description="name in results")),
        "local": (LocalOptions, Field(default_factory=LocalOptions, description="changes to training.local")),
        "weighting": (Weighting | None, Field(default=None, description="weights of the mean; null: the method's own")),
        "overlap": (bool, Field(default=False, description="send early parts during the previous round")),
        "codec": (Codecs, Field(default_factory=Codecs, description="changes to training.codec")),
    }
    described = Field(
        None, description="another server update", json_schema_extra=lambda schema: schema.update(_server_schema())
    )
    fields["server"] = (Annotated[ServerUpdate | None, PlainValidator(as_validator(server_update))], described)
    defaults = _defaults(recipe)
    for part in _parts(recipe):
        for option, info in part.model_fields.items():
            if option in RESERVED:
                raise ValueError(f"the option '{option}' of {part.__name__} has the name of a key of every method")
            changed = {"default": defaults[option]} if option in defaults else {}
            fields.setdefault(option, (info.annotation, info.merge_field_infos(info, **changed) if changed else info))
    return create_model("Method", __base__=Options, **fields)


def build_method(
    entry: Mapping[str, Any] | str, local: LocalOptions, codecs: Codecs | None = None, rounds: int | None = None
) -> Method:
    """The method described by an entry of a scenario's ``methods``.

    Args:
        entry: a method's name, or a mapping with ``method`` or ``python``, optionally ``as``, ``local`` (changes to the
            scenario's), ``server``, ``weighting``, ``overlap``, ``codec``, and any option of the method's parts. An
            option is passed to every part that has it (FedADC's β_l is an option of rule, server and payload).
        local: the scenario's ``training.local``.
        codecs: the scenario's ``training.codec``; by default no encoding.
        rounds: the scenario's ``training.rounds``, at which some learning rates end.

    >>> build_method({"method": "fedprox", "mu": 0.1, "as": "prox"}, LocalOptions()).objective
    FedProx(mu=0.1)
    """
    data = {"method": entry} if isinstance(entry, str) else dict(entry)
    if "method" not in data and "python" not in data:
        raise UserError(f"this key is missing; expected one of: {', '.join(METHODS.names())}", field="method")
    name, recipe = str(data.get("method", data.get("as", ""))), recipe_in(data)
    said = validated(method_model(recipe), {key: data[key] for key in data if key not in ("method", "python")})
    options = {**_defaults(recipe), **{field: getattr(said, field) for field in said.model_fields_set}}

    def part(kind: type[Component]) -> Any:
        return validated(kind, {field: options[field] for field in kind.model_fields if field in options})

    chosen: ServerUpdate | None = options.get("server")
    if chosen is not None:
        _check_choice(recipe, chosen, said.model_fields_set)
        if type(chosen) is type(recipe.server):  # its options that clients also have are next to method
            common = shared_options(recipe) & set(options) & set(type(chosen).model_fields)
            chosen = chosen.model_copy(update={option: options[option] for option in common})
    at = "" if chosen is None else "server."
    server = lasting(chosen or part(type(recipe.server)), rounds, at)
    merged = lasting(_finishing(_merged(local, options.get("local")), recipe.common_finish), rounds, "local.")
    objective, changes = part(recipe.objective), options.get("codec")
    if objective.server is not None:  # there are no transfers to encode
        merged, codecs, changes = _on_server(merged), None, None
    chosen_rule = recipe.rule is Sgd
    for option, value in server:
        if isinstance(value, Rate) and value.over == "steps":
            raise UserError("a server has no local steps; expected rounds", field=f"{at}{option}.over")
    rule = merged.optimizer.rule() if chosen_rule else part(recipe.rule)
    rule.accept(merged)
    server = server.with_clients(objective, merged)
    weighting = options.get("weighting") or (chosen and chosen.default_weighting) or recipe.weighting
    payload = part(recipe.payload)
    if chosen_rule and isinstance(rule, Optimizer) and rule.state == "average":
        server, payload = AveragedState(base=server, rule=rule), PayloadWithState(base=payload, rule=rule)
    coded = codecs or Codecs()
    if changes is not None:
        coded = coded.model_copy(update={way: getattr(changes, way) for way in changes.model_fields_set})
    kept = codec_state(coded, partial=payload.sends_blocks)
    method = Method(
        name=name,
        label=options.get("label") or name,
        objective=server.objective(objective),
        rule=rule,
        server=server,
        payload=payload,
        state=together(recipe.state, server.client_state(), rule.client_state(), *kept),
        weighting=weighting,
        local=merged,
        overlap=bool(options.get("overlap", False)),
        codecs=coded,
        submodels=None if recipe.submodels is None else part(recipe.submodels),
        chosen_rule=chosen_rule,
    )
    _check_names(method)
    _check_downlink(method)
    check(method.parts(), method.takes())
    return method


def _merged(local: LocalOptions, changes: LocalOptions | None) -> LocalOptions:
    """Epochs and steps replace each other."""
    if changes is None:
        return local
    given = changes.model_dump(exclude_unset=True)
    base = local.model_dump(exclude_unset=True)
    if given.get("epochs") is not None:
        base.pop("steps", None)
    if given.get("steps") is not None:
        base.pop("epochs", None)
    return LocalOptions.model_validate({**base, **given})


def _on_server(local: LocalOptions) -> LocalOptions:
    """The same options with the usual steps, and an optimizer whose state goes on from job to job, if it has one."""
    optimizer = local.optimizer
    if not isinstance(optimizer, OwnOptimizer) and (optimizer.kind != "sgd" or local.momentum):
        optimizer = optimizer.model_copy(update={"state": "keep"})
    return local.model_copy(update={"optimizer": optimizer, "common_finish": None})


def _finishing(local: LocalOptions, default: CommonFinish | None) -> LocalOptions:
    if default is None:
        return local
    said = {} if local.common_finish is None else local.common_finish.model_dump(exclude_unset=True)
    finish = CommonFinish(**{**default.model_dump(exclude_unset=True), **said})
    return LocalOptions.model_validate({**local.model_dump(exclude_unset=True), "common_finish": finish})


def _check_choice(recipe: Recipe, chosen: ServerUpdate, said: set[str]) -> None:
    own, shared = set(type(recipe.server).model_fields), shared_options(recipe)
    if type(chosen) is type(recipe.server) and (both := chosen.model_fields_set & shared):
        raise UserError(f"'{min(both)}' also applies to clients; set it next to 'method'", field=f"server.{min(both)}")
    for option in sorted(said & (own - shared)):
        raise UserError(
            f"'{option}' is an option of the server update '{recipe.server.registered_name}'; set the options of "
            f"'{chosen.registered_name}' under server",
            field=option,
        )


def _check_names(method: Method) -> None:
    """What the clients' parts read must be provided, and each vector that the server broadcasts must be read."""
    objective, rule, server = method.objective, method.rule, method.server
    state = method.state.vectors if method.state is not None else ()
    there = {"received", *state, *server.broadcasts}
    for part, names in ((objective, objective.vectors | objective.frozen), (rule, rule.vectors)):
        for name in sorted(names - there):
            raise UserError(
                f"{type(part).__name__} reads '{name}', which server update '{server.registered_name}' does not send "
                f"and the clients of method '{method.name}' do not keep; {nearest(name, there)}",
                field="server",
            )
    for name in sorted(objective.client - set(CLIENT_FACTS)):
        hint = nearest(name, CLIENT_FACTS)
        raise UserError(f"{type(objective).__name__} reads the fact '{name}' about its client; {hint}")
    for name in sorted(set(server.broadcasts) - (objective.vectors | objective.frozen | rule.vectors)):
        raise UserError(
            f"server update '{server.registered_name}' cannot be used with method '{method.name}': its clients do not "
            f"read the '{name}' that it sends",
            field="server",
        )


def _check_downlink(method: Method) -> None:
    """Only those of the first rounds to a client without a model; the run checks every downlink."""
    sizes = ModelSizes((1000,) * 4)
    broadcasts = Broadcasts(method, sizes)
    try:
        for round in range(1, 9):
            broadcasts.check(method.payload.downlink(sizes, round, None, None), round, None)
    except WrongAnswer as error:
        raise UserError(f"method '{method.name}': {error}") from None
