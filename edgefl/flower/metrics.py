"""The metrics that an app computes: from the results of strategies, current and legacy, while it runs."""

import math
import numbers
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from edgefl.errors import UserError
from edgefl.flower.virtual_time import replaced
from edgefl.training.job import Evaluation

Source = Literal["server", "clients"]
"""Who evaluated: the ``ServerApp`` itself, or the clients, whose metrics it aggregated."""


ROUNDING = 1e-5
"""How far beyond 0 and 1 a mean of shares in single precision may be."""


class Metrics:
    """The metrics of the present round; ``name`` is the accuracy, if None the first whose name contains ``acc``.

    An app whose first accuracy is above 1 has per cent; ``whole`` is 100 then.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self.whole: float | None = None
        self._found: dict[Source, dict[str, float]] = {}
        self.names: set[str] = set()

    def add(self, source: Source, round: int, values: Mapping[str, Any]) -> None:
        """Add metrics of a round of the app; those of round 0 belong to the initial model, and do not count."""
        found = {name: float(value) for name, value in values.items() if isinstance(value, numbers.Real)}
        self.names |= set(found)
        if round > 0:
            self._found.setdefault(source, {}).update(found)

    def clear(self) -> None:
        self._found.clear()

    def evaluation(self) -> Evaluation | None:
        """The server's evaluation comes before the clients'; UserError if the accuracy is no share and no percentage.

        NaN, as of clients without samples, is no evaluation.
        """
        sources: tuple[Source, ...] = ("server", "clients")
        for source in sources:
            found = self._found.get(source, {})
            name = self._name if self._name is not None else next((each for each in found if "acc" in each), None)
            if name is None or name not in found or math.isnan(found[name]):
                continue
            if self.whole is None:
                self.whole = 1.0 if found[name] <= 1 + ROUNDING else 100.0
            value = found[name] / self.whole
            if not -ROUNDING <= value <= 1 + ROUNDING:
                raise UserError(
                    f"the app's metric '{name}' is {found[name]:g}, which is no accuracy (it began as one from 0 to "
                    f"{self.whole:g}): choose another one with flower.metric, or return it from 0 to 1",
                    field="flower.metric",
                )
            loss = next((number for each, number in found.items() if "loss" in each), math.nan)
            return Evaluation(min(1.0, max(0.0, value)), loss)
        return None


class _Noting(dict[int, Any]):
    """A dictionary of metrics by round that reports its entries; a copy or a pickle of it is an ordinary one."""

    def __init__(self, given: Mapping[int, Any], report: Callable[[int, Mapping[str, Any]], None]) -> None:
        super().__init__()
        self._report = report
        for round, values in given.items():
            self[round] = values

    def __setitem__(self, round: int, values: Any) -> None:
        super().__setitem__(round, values)
        self._report(round, values)

    def __reduce__(self) -> tuple[type, tuple[dict[int, Any]]]:
        return dict, (dict(self),)


@contextmanager
def observed(metrics: Metrics) -> Iterator[None]:
    """Within the block, results of Flower's strategies also add their metrics to ``metrics``."""
    from flwr.server.history import History
    from flwr.serverapp.strategy import Result

    made, server_loss, server_values = Result.__init__, History.add_loss_centralized, History.add_metrics_centralized
    client_loss, client_values = History.add_loss_distributed, History.add_metrics_distributed

    def make(result: Any, *arguments: Any, **options: Any) -> None:
        made(result, *arguments, **options)
        server, clients = result.evaluate_metrics_serverapp, result.evaluate_metrics_clientapp
        result.evaluate_metrics_serverapp = _Noting(server, lambda *entry: metrics.add("server", *entry))
        result.evaluate_metrics_clientapp = _Noting(clients, lambda *entry: metrics.add("clients", *entry))

    def adding(then: Any, source: Source, name: str | None) -> Any:
        def add(history: Any, server_round: int, values: Any = None, **named: Any) -> None:
            given = next(iter(named.values())) if named else values
            then(history, server_round, given)
            metrics.add(source, server_round, given if name is None else {name: given})

        return add

    with replaced(
        (Result, "__init__", make),
        (History, "add_loss_centralized", adding(server_loss, "server", "loss")),
        (History, "add_metrics_centralized", adding(server_values, "server", None)),
        (History, "add_loss_distributed", adding(client_loss, "clients", "loss")),
        (History, "add_metrics_distributed", adding(client_values, "clients", None)),
    ):
        yield
