"""Split an ordinary module into consecutive blocks, at calls of its submodules in a trace (:mod:`torch.fx`).

A block can begin at a call if exactly one value, its tap, reaches it from the calls before.
"""

import operator
from collections.abc import Sequence
from typing import NamedTuple

from torch import fx, nn

from edgefl.errors import UserError, first_line
from edgefl.models.module_state import remade, restore, snapshot


class Split(NamedTuple):
    """The blocks of a module in the order of their calls; ``whole``: why it could not be split, if it is one block."""

    blocks: dict[str, nn.Module]
    whole: str | None = None


def split(module: nn.Module, names: Sequence[str] | None = None) -> Split:
    """The blocks of a module.

    By default a block begins at each child that has a weight of two or more dimensions; children without one
    (normalisation, activation, pooling) belong to the block before, and those after the last block's predecessor that
    have no parameters to the last block. A module that only calls one ``Sequential`` is split into the parts of it.

    Args:
        module: takes one tensor, and returns one.
        names: the submodules at whose first call a block begins, in order, such as ``["conv1", "layer1.0", "fc"]``;
            what is called before the first one belongs to its block. One name: the module is one block.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 10))
    >>> list(split(net).blocks)
    ['0', '3']
    """
    try:
        return Split(_split(module, names))
    except _Whole as error:
        if names is not None and len(names) > 1:
            raise UserError(f"the model cannot be split: {error}", field="blocks") from None
        return Split({"model" if names is None else names[0].replace(".", "_"): module}, str(error) or None)


def _split(module: nn.Module, names: Sequence[str] | None) -> dict[str, nn.Module]:
    if names is None:
        opened = _only_sequentials(module)
    else:  # the modules that contain these
        parts = [name.split(".") for name in names]
        opened = frozenset(".".join(each[:count]) for each in parts for count in range(1, len(each)))
    graph = _traced(module, opened)
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output") and not _is_anywhere(node)]
    starts = _named_starts(nodes, names) if names is not None else _found_starts(nodes, module)
    kept = starts[:1]
    for start in starts[1:]:
        crossing = _crossing(nodes, nodes.index(start[0]))
        if len(crossing) == 1 and not _is_tuple(crossing[0]):
            kept.append(start)
        elif names is not None:
            values = ", ".join(each.name for each in crossing) or "none"
            raise _Whole(
                f"a block begins where one tensor arrives, and {len(crossing)} values or a tuple reach '{start[1]}' "
                f"({values})"
            )
    if len(kept) < 2:
        several = "more than one value passes between its children" if len(starts) > 1 else ""
        raise _Whole("'blocks' names one" if names else several)
    module.add_module(_IN_TRAINING, InTraining())
    try:
        return _blocks(module, nodes, kept)
    except Exception as error:  # noqa: BLE001  (torch.fx writes Python code with the submodules' names)
        raise _Whole(f"torch.fx cannot write its blocks ({first_line(error)})") from None
    finally:
        del module._modules[_IN_TRAINING]  # a Sequential would call it as its last part


class _Whole(Exception):  # noqa: N818  (a property of the module)
    """Why the module stays one block."""


class _Calls(fx.Tracer):
    """Records the calls of submodules, and looks only into those that are opened."""

    def __init__(self, opened: frozenset[str]) -> None:
        super().__init__()
        self._opened = {"0", *(f"0.{path}" for path in opened)}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name not in self._opened

    def to_bool(self, obj: fx.Proxy) -> bool:
        raise fx.proxy.TraceError("a condition on a tensor, on its shape, or on whether the module trains")


_IN_TRAINING = "_in_training"


class InTraining(nn.Module):
    """True if the current call trains; a module, since a graph calls it anew whenever it is executed or unpickled."""

    def forward(self) -> bool:
        return self.training


def _traced(module: nn.Module, opened: frozenset[str]) -> fx.Graph:
    """The graph of a module's calls, which reads whether it trains where the module does."""
    tracer, kind, put_back = _Calls(opened), type(module), snapshot(module)
    reading = property(lambda _: tracer.create_proxy("call_module", f"0.{_IN_TRAINING}", (), {}))
    try:
        module.__class__ = type(kind.__name__, (kind,), {"training": reading})
        graph = tracer.trace(nn.Sequential(module))  # so it gets one argument
    except Exception as error:  # noqa: BLE001  (whatever the module's code raises when it gets a proxy)
        raise _Whole(f"{kind.__name__}.forward cannot be traced ({first_line(error)})") from None
    finally:
        module.__class__ = kind
        put_back()  # a forward that assigns to its buffers has put proxies there
        restore(remade(module))
    for node in graph.nodes:
        if node.op == "get_attr" and not str(node.target).startswith("0."):
            raise _Whole(f"{kind.__name__}.forward makes a tensor that does not depend on its input")
        if node.op in ("call_module", "get_attr"):
            node.target = str(node.target).removeprefix("0.")
    return graph


def _only_sequentials(module: nn.Module) -> frozenset[str]:
    """The paths of ``Sequential`` modules that are all that the module around them has."""
    opened, path = set(), ""
    while len(children := list(module.named_children())) == 1 and type(children[0][1]) is nn.Sequential:
        name, module = children[0]
        path = f"{path}.{name}" if path else name
        opened.add(path)
    return frozenset(opened)


def _named_starts(nodes: Sequence[fx.Node], names: Sequence[str]) -> list[tuple[fx.Node, str]]:
    starts: list[tuple[fx.Node, str]] = []
    for name in names:
        calls = [node for node in nodes if node.op == "call_module" and node.target == name]
        after = calls and (not starts or nodes.index(calls[0]) > nodes.index(starts[-1][0]))
        if not after:
            called = dict.fromkeys(str(node.target) for node in nodes if node.op == "call_module")
            raise UserError(
                f"expected submodules in the order of their calls, found '{name}'; called are: {', '.join(called)}",
                field="blocks",
            )
        starts.append((calls[0], name))
    return [(nodes[0], starts[0][1]), *starts[1:]]


def _found_starts(nodes: Sequence[fx.Node], module: nn.Module) -> list[tuple[fx.Node, str]]:
    first: dict[str, fx.Node] = {}
    for node in nodes:
        if node.op == "call_module":
            first.setdefault(str(node.target), node)
    starts = [
        (node, name)
        for name, node in first.items()
        if any(parameter.dim() > 1 for parameter in module.get_submodule(name).parameters())
    ]
    if len(starts) > 1:
        # What has no parameters before the last block, such as pooling, belongs to it.
        place = nodes.index(starts[-1][0])
        while place > 0 and not _has_parameters(nodes[place - 1], module):
            place -= 1
        starts[-1] = nodes[place], starts[-1][1]
    return [(nodes[0], starts[0][1]), *starts[1:]] if starts else []


def _has_parameters(node: fx.Node, module: nn.Module) -> bool:
    if node.op == "call_module":
        return any(True for _ in module.get_submodule(str(node.target)).parameters())
    return any(each.op == "get_attr" for each in node.all_input_nodes)


def _is_anywhere(node: fx.Node) -> bool:
    """True for a parameter and for whether the module trains, which any block may read."""
    return node.op == "get_attr" or node.target == _IN_TRAINING


def _crossing(nodes: Sequence[fx.Node], place: int) -> list[fx.Node]:
    """The values that were computed before a place and are used from there on."""
    before = set(nodes[:place])
    after = [*nodes[place:], *(user for node in nodes for user in node.users if user.op == "output")]
    found = dict.fromkeys(each for node in after for each in node.all_input_nodes)
    return [each for each in found if each in before or each.op == "placeholder"]


def _is_tuple(value: fx.Node) -> bool:
    """True if a value is unpacked, as the results of a recurrent layer are."""
    return any(user.target is operator.getitem and isinstance(user.args[1], int) for user in value.users)


def _blocks(module: nn.Module, nodes: Sequence[fx.Node], starts: Sequence[tuple[fx.Node, str]]) -> dict[str, nn.Module]:
    places = [nodes.index(node) for node, _ in starts] + [len(nodes)]
    blocks: dict[str, nn.Module] = {}
    for (_, name), first, stop in zip(starts, places, places[1:], strict=False):
        graph = fx.Graph()
        (arriving,) = _crossing(nodes, first)
        copies = {arriving: graph.placeholder("inputs")}

        def copied(node: fx.Node, graph: fx.Graph = graph, copies: dict[fx.Node, fx.Node] = copies) -> fx.Node:
            if node not in copies:  # see _is_anywhere
                copies[node] = graph.node_copy(node)
            return copies[node]

        for node in nodes[first:stop]:
            copies[node] = graph.node_copy(node, copied)
        (leaving,) = _crossing(nodes, stop)
        graph.output(copies[leaving])
        block = fx.GraphModule(module, graph, class_name=f"Block_{name}".replace(".", "_"))
        for node in graph.find_nodes(op="get_attr"):  # before PyTorch 2.7 a copied buffer becomes persistent
            owner, _, tensor = str(node.target).rpartition(".")
            if tensor in module.get_submodule(owner)._non_persistent_buffers_set:
                block.get_submodule(owner)._non_persistent_buffers_set.add(tensor)
        key = name.replace(".", "_")
        while key in blocks:
            key += "_"
        blocks[key] = block
    return blocks
