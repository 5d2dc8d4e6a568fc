"""pytest plugin for ``@pytest.mark.hpu``: tests on Gaudi cards, or on simulated cards if the machine has none.

::

    @pytest.mark.hpu
    def test_trains(): ...


    @pytest.mark.hpu(devices=2, generation="GAUDI3", release="1.22.0", lazy=True)
    def test_trains_on_two_cards(): ...

If Intel's bridge is installed, the test runs on the machine's cards, and is skipped if they do not meet its
requirements. Otherwise it runs on simulated cards: in the pytest process if that already simulates a matching machine
(``hpu-sim run -m pytest``, ``HPU_SIM_DEVICES=1 pytest``), else isolated in a subprocess. It is skipped if the simulator
cannot start.

pytest loads this plugin through its entry point. Neither torch nor the simulator is imported before the first marked
test.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

try:
    import pytest
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the pytest plugin of hpu-sim needs pytest, which is not installed: pip install pytest"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Generator

_HELP = (
    "hpu(devices=None, generation=None, release=None, lazy=None): run on Gaudi cards, or on simulated cards if the "
    "machine has none. None means any; a simulated machine has one GAUDI2 by default."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that makes the simulated cards strict."""
    parser.getgroup("hpu-sim").addoption(
        "--hpu-sim-strict",
        action="store_true",
        help="fail, or show the difference, where a Gaudi card refuses what the simulator permits (HPU_SIM_STRICT=1)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Give a session that HPU_SIM_DEVICES asks for a machine of its own, and so each worker of pytest-xdist."""
    if early_config.known_args_namespace.hpu_sim_strict:
        os.environ["HPU_SIM_STRICT"] = "1"
    # A session inside of an active process, such as pytester's, shares its machine.
    if os.environ.get("HPU_SIM_DEVICES") and "hpu_sim.device.runtime" not in sys.modules:
        from hpu_sim.device import machine_id

        os.environ.update(machine_id.named_or_new(os.environ))


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker.

    Raises:
        UsageError: If the simulator is already active and not strict, and the option asks for it.
    """
    runtime = sys.modules.get("hpu_sim.device.runtime")
    is_strict = runtime is None or not runtime.is_active() or runtime.active_config().strict
    if config.getoption("hpu_sim_strict") and not is_strict:
        raise pytest.UsageError("`--hpu-sim-strict` needs a simulator that is not active yet: set HPU_SIM_STRICT=1")
    config.addinivalue_line("markers", _HELP)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Select where a marked test runs."""
    marker = item.get_closest_marker("hpu")
    if marker is not None:
        from hpu_sim.pytest_plugin import dispatch

        dispatch.install_overrides(item, marker)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Return the report from the subprocess of an isolated test."""
    outcome = yield
    if item.get_closest_marker("hpu") is not None:
        from hpu_sim.pytest_plugin import dispatch

        report = dispatch.get_report(item, call.when)
        if report is not None:
            outcome.force_result(report)
