"""Settings proposed by optuna, based on the results of earlier settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgefl.errors import UserError
from edgefl.record.metric import WORST
from edgefl.scenario.sweep import OptunaSpec, SweepSpec
from edgefl.sweep.choice import merit, metric_of
from edgefl.sweep.jobs import Job
from edgefl.sweep.settings import Setting
from edgefl.sweep.sweeping import Search


def proposals(spec: SweepSpec, options: OptunaSpec, methods: Sequence[str], make: Callable[..., list[Job]]) -> Search:
    """Yield the jobs of settings that a tree-structured Parzen estimator proposes, in batches for each method.

    Source: Bergstra et al., Algorithms for Hyper-Parameter Optimization, 2011, in optuna's ``TPESampler``. The batch
    size is fixed, and results are passed to optuna in the order of the proposals, so the same search proposes the same
    settings with any number of processors, and after an interruption.

    Args:
        spec: the search space: ``grid`` and ``ranges``.
        options: the number of settings, the sampler's options and the metric.
        methods: labels; each is tuned separately.
        make: returns the jobs of a setting with one method.

    Raises:
        UserError: optuna is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise UserError(
            "optuna is not installed; expected the package optuna, which comes with: pip install 'edgefl[optuna]'",
            field="sweep.optuna",
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = _space(optuna, spec)
    studies = {
        method: optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=options.seed))
        for method in methods
    }
    for start in range(0, options.trials, options.together):
        count = min(options.together, options.trials - start)
        asked = [(study, study.ask(space), method) for method, study in studies.items() for _ in range(count)]
        jobs = [make(_setting(spec, trial.params), method) for _, trial, method in asked]
        figures = iter((yield [job for each in jobs for job in each]))
        for (study, trial, _), each in zip(asked, jobs, strict=True):
            metric = metric_of(each[0])
            worst = 0.0 if metric.better == "higher" else -WORST
            # A setting that fails or diverges gets the worst value, so that the next proposals avoid it.
            study.tell(trial, max(merit(options.metric, [next(figures) for _ in each], metric), worst))


def _space(optuna: Any, spec: SweepSpec) -> dict[str, Any]:
    # Values may be mappings, which optuna does not support, so it proposes their indices.
    of = optuna.distributions
    chosen = {path: of.CategoricalDistribution(range(len(values))) for path, values in spec.grid.items()}
    return chosen | {
        path: of.FloatDistribution(each.low, each.high, log=each.log) for path, each in spec.ranges.items()
    }


def _setting(spec: SweepSpec, proposed: Mapping[str, Any]) -> Setting:
    return {path: spec.grid[path][value] if path in spec.grid else float(value) for path, value in proposed.items()}
