"""Dispatch of marked tests: run in this process, run isolated, or skip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from hpu_sim.process import activation
from hpu_sim.pytest_plugin import isolated
from hpu_sim.pytest_plugin.child import WRITER_NAME
from hpu_sim.pytest_plugin.requirements import DeviceRequirements, matches_process, skip_reason

if TYPE_CHECKING:
    from hpu_sim.device.config import SimConfig

_reports = pytest.StashKey[dict[str, pytest.TestReport]]()
# Error that prevented activation of the simulator. Kept, because finding out takes seconds.
_start_error = pytest.StashKey[str]()


def install_overrides(item: pytest.Item, marker: pytest.Mark) -> None:
    """Override setup, call and teardown of a test to dispatch it."""

    def setup() -> None:
        try:
            config = _isolated_config(item, DeviceRequirements.from_marker(marker.args, marker.kwargs))
        except (TypeError, ValueError) as error:
            pytest.fail(str(error), pytrace=False)
        if config is None:
            restore()
            item.setup()
        else:
            _run_isolated(item, config)

    # pytest's protocol stays in charge, for the sake of other plugins. The overrides are on this item only.
    overrides: dict[str, Any] = {"setup": setup, "runtest": _noop, "teardown": _noop}
    item.stash[_reports] = {}

    def restore() -> None:
        for name in overrides:
            delattr(item, name)

    for name, function in overrides.items():
        setattr(item, name, function)


def _isolated_config(item: pytest.Item, requirements: DeviceRequirements) -> SimConfig | None:
    """Return the machine that a subprocess has to simulate; None if the test can run in this process.

    Raises:
        ValueError: If a requirement is invalid.
        Skipped: If the devices of this machine do not meet the requirements.
    """
    if activation.real_bridge_folders():
        reason = skip_reason(requirements)
        if reason is not None:
            pytest.skip(reason)
        return None
    config = requirements.config()
    if matches_process(config) or item.config.pluginmanager.has_plugin(WRITER_NAME):
        return None
    return config


def get_report(item: pytest.Item, when: Literal["collect", "setup", "call", "teardown"]) -> pytest.TestReport | None:
    """Return the report of a phase of an isolated test; None if the test ran in this process."""
    return item.stash.get(_reports, {}).get(when)


def _run_isolated(item: pytest.Item, config: SimConfig) -> None:
    if _start_error not in item.config.stash:
        result = isolated.run(item, config)
        if result.start_error is None:
            reports = {str(report.when): report for report in result.reports}
            if "teardown" not in reports:
                pytest.fail(f"the subprocess of the test {result.exit_description}:\n{result.output}", pytrace=False)
            item.stash[_reports] = reports
            return
        item.config.stash[_start_error] = result.start_error
    pytest.skip(f"the simulator cannot start: {item.config.stash[_start_error]}")


def _noop() -> None:
    """Do nothing, because the isolated test already ran."""
