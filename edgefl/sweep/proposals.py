"""Settings proposed by optuna, which learns from those that were tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgefl.errors import UserError
from edgefl.scenario.sweep import OptunaSpec, SweepSpec
from edgefl.sweep.choice import mean_by
from edgefl.sweep.jobs import Job
from edgefl.sweep.settings import Setting
from edgefl.sweep.sweeping import Search


def proposals(spec: SweepSpec, options: OptunaSpec, methods: Sequence[str], make: Callable[..., list[Job]]) -> Search:
    """The jobs of the settings that a tree-structured Parzen estimator proposes, some at a time for each method.

    Source: Bergstra et al., Algorithms for Hyper-Parameter Optimization, 2011, in optuna's ``TPESampler``. How many are
    proposed together is fixed, and results are told in the order of the proposals, so the same search proposes the same
    settings whatever the number of processors, and after an interruption.

    Args:
        spec: what may be proposed: ``grid`` and ``ranges``.
        options: how many, how, and by what they are judged.
        methods: labels; each is tuned for itself.
        make: the jobs of a setting with one method.

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
            value = mean_by(options.metric, [next(figures) for _ in each])
            # A setting that fails or diverges is as bad as can be, and the next ones shall keep away from it.
            study.tell(trial, max(value, 0.0))


def _space(optuna: Any, spec: SweepSpec) -> dict[str, Any]:
    # Values may be mappings, which optuna does not know; their places are proposed.
    of = optuna.distributions
    chosen = {path: of.CategoricalDistribution(range(len(values))) for path, values in spec.grid.items()}
    return chosen | {
        path: of.FloatDistribution(each.low, each.high, log=each.log) for path, each in spec.ranges.items()
    }


def _setting(spec: SweepSpec, proposed: Mapping[str, Any]) -> Setting:
    return {path: spec.grid[path][value] if path in spec.grid else float(value) for path, value in proposed.items()}
