"""Where a marked test runs: here, in a process of its own, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from hpu_sim import activation
from hpu_sim.pytest_plugin import fresh
from hpu_sim.pytest_plugin.child import MESSENGER
from hpu_sim.pytest_plugin.machine import Wish, is_here, why_not_on_cards

if TYPE_CHECKING:
    from hpu_sim.config import SimConfig

_reports = pytest.StashKey[dict[str, pytest.TestReport]]()
# Why the simulator cannot start: found out once, for it takes a while.
_cannot_start = pytest.StashKey[str]()


def prepare(item: pytest.Item, marker: pytest.Mark) -> None:
    """See to it that a test runs where it should.

    Args:
        item: The test.
        marker: Its marker.
    """

    def setup() -> None:
        try:
            config = _machine_elsewhere(item, Wish.create(marker.args, marker.kwargs))
        except (TypeError, ValueError) as error:
            pytest.fail(str(error), pytrace=False)
        if config is None:
            restore()
            item.setup()
        else:
            _run_elsewhere(item, config)

    # pytest's own protocol goes on, so that other plugins notice nothing; only what the test itself does is replaced,
    # for the time being on this one object.
    overrides: dict[str, Any] = {"setup": setup, "runtest": _do_nothing, "teardown": _do_nothing}
    item.stash[_reports] = {}

    def restore() -> None:
        for name in overrides:
            delattr(item, name)

    for name, function in overrides.items():
        setattr(item, name, function)


def _machine_elsewhere(item: pytest.Item, wish: Wish) -> SimConfig | None:
    """Return the machine that another process has to be for a test, or None where this one will do.

    Raises:
        ValueError: If no machine is as asked for.
        Skipped: If this process has cards, and others than the test asks for.
    """
    if activation.real_bridge_folders():
        reason = why_not_on_cards(wish)
        if reason is not None:
            pytest.skip(reason)
        return None
    config = wish.config()
    if is_here(config) or item.config.pluginmanager.has_plugin(MESSENGER):
        return None
    return config


def report_of(item: pytest.Item, when: Literal["collect", "setup", "call", "teardown"]) -> pytest.TestReport | None:
    """Return how a phase of a test went in its own process; None where it had none."""
    return item.stash.get(_reports, {}).get(when)


def _run_elsewhere(item: pytest.Item, config: SimConfig) -> None:
    if _cannot_start not in item.config.stash:
        result = fresh.run(item, config)
        if result.cannot_start is None:
            reports = {str(report.when): report for report in result.reports}
            if "teardown" not in reports:
                pytest.fail(f"the test's own process {result.ending}:\n{result.output}", pytrace=False)
            item.stash[_reports] = reports
            return
        item.config.stash[_cannot_start] = result.cannot_start
    pytest.skip(f"the simulator cannot start: {item.config.stash[_cannot_start]}")


def _do_nothing() -> None:
    """Stand in for what a test does, where it has done it elsewhere."""
