"""Where a marked test runs: here, in a process of its own, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from hpu_sim import activation
from hpu_sim.pytest_plugin import isolated
from hpu_sim.pytest_plugin.child import FORWARDER_NAME
from hpu_sim.pytest_plugin.requirements import DeviceRequirements, matches_process, skip_reason

if TYPE_CHECKING:
    from hpu_sim.config import SimConfig

_reports = pytest.StashKey[dict[str, pytest.TestReport]]()
# Why the simulator cannot start: found out once, for it takes a while.
_start_error = pytest.StashKey[str]()


def install_overrides(item: pytest.Item, marker: pytest.Mark) -> None:
    """See to it that a test runs where it should.

    Args:
        item: The test.
        marker: Its marker.
    """

    def setup() -> None:
        try:
            config = _isolated_config(item, DeviceRequirements.create(marker.args, marker.kwargs))
        except (TypeError, ValueError) as error:
            pytest.fail(str(error), pytrace=False)
        if config is None:
            restore()
            item.setup()
        else:
            _run_isolated(item, config)

    # pytest's own protocol goes on, so that other plugins notice nothing; only what the test itself does is replaced,
    # for the time being on this one object.
    overrides: dict[str, Any] = {"setup": setup, "runtest": _noop, "teardown": _noop}
    item.stash[_reports] = {}

    def restore() -> None:
        for name in overrides:
            delattr(item, name)

    for name, function in overrides.items():
        setattr(item, name, function)


def _isolated_config(item: pytest.Item, requirements: DeviceRequirements) -> SimConfig | None:
    """Return the machine that another process has to be for a test, or None where this one will do.

    Raises:
        ValueError: If no machine is as asked for.
        Skipped: If this process has cards, and others than the test asks for.
    """
    if activation.real_bridge_folders():
        reason = skip_reason(requirements)
        if reason is not None:
            pytest.skip(reason)
        return None
    config = requirements.config()
    if matches_process(config) or item.config.pluginmanager.has_plugin(FORWARDER_NAME):
        return None
    return config


def get_report(item: pytest.Item, when: Literal["collect", "setup", "call", "teardown"]) -> pytest.TestReport | None:
    """Return how a phase of a test went in its own process; None where it had none."""
    return item.stash.get(_reports, {}).get(when)


def _run_isolated(item: pytest.Item, config: SimConfig) -> None:
    if _start_error not in item.config.stash:
        result = isolated.run(item, config)
        if result.start_error is None:
            reports = {str(report.when): report for report in result.reports}
            if "teardown" not in reports:
                pytest.fail(f"the test's own process {result.exit_description}:\n{result.output}", pytrace=False)
            item.stash[_reports] = reports
            return
        item.config.stash[_start_error] = result.start_error
    pytest.skip(f"the simulator cannot start: {item.config.stash[_start_error]}")


def _noop() -> None:
    """Stand in for what a test does, where it has done it elsewhere."""
