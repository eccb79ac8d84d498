"""The tutorial's scenario says what its page says of it."""

from edgefl.planning import plan
from edgefl.scenario import load_scenario


def test_the_allowance_ends_before_the_month_and_fedadc_first():
    scenario = load_scenario("lte_500phones")
    made = plan(scenario, methods=["fedavg", "fedadc"], rounds=6)
    reach = {each.label: {budget.kind: budget for budget in each.budgets} for each in made.methods}
    for budgets in reach.values():
        assert budgets["client_bytes"].rounds < budgets["seconds"].rounds
    assert reach["fedadc"]["client_bytes"].rounds < 0.7 * reach["fedavg"]["client_bytes"].rounds
