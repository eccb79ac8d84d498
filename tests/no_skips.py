"""The option ``--no-skips`` of pytest: what skips itself fails, in an environment that lacks nothing."""

import pytest

OPTION = "--no-skips"


def pytest_addoption(parser):
    parser.addoption(OPTION, action="store_true", help="a test that skips itself fails")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _failed_if_skipped(item.config, (yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _failed_if_skipped(collector.config, (yield))


def _failed_if_skipped(config, report):
    if config.getoption(OPTION) and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"{reason} ({OPTION})"
    return report
