"""The scenario: one YAML file that specifies everything a comparison depends on.

:func:`load_scenario` reads and checks a scenario, :func:`resolve` returns it in full, :func:`json_schema` returns the
schema of scenario files.
"""

from edgefl.scenario.loading import json_schema, load_scenario, resolve, with_overrides
from edgefl.scenario.methods import ScenarioMethod
from edgefl.scenario.rehearsal import rehearse
from edgefl.scenario.scenario import Scenario

__all__ = ["Scenario", "ScenarioMethod", "json_schema", "load_scenario", "rehearse", "resolve", "with_overrides"]
