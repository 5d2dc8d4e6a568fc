"""``@pytest.mark.hpu``: a test that runs on Gaudi cards, simulated ones where the machine has none.

::

    @pytest.mark.hpu
    def test_trains(): ...


    @pytest.mark.hpu(devices=2, generation="GAUDI3", release="1.22.0", lazy=True)
    def test_trains_on_two_cards(): ...

Where the vendor's bridge is installed, the test runs on the machine's cards and is skipped if they are not those that
it asks for. Elsewhere it runs on simulated ones: in pytest's own process if that is such a machine already (``hpu-sim
run -m pytest``, ``HPU_SIM_DEVICES=1 pytest``), else in a process of its own, so that nothing of it is left behind. It
is skipped, with the reason, where the simulator cannot start.

pytest loads this by itself; until a test carries the marker it loads neither torch nor the simulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import pytest
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the plugin of hpu-sim for pytest needs pytest, which is not installed: pip install 'hpu-sim[pytest]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Generator

_HELP = (
    "hpu(devices=None, generation=None, release=None, lazy=None): runs on Gaudi cards, simulated ones where the "
    "machine has none. None takes what there is; a simulated machine has one GAUDI2 and the newest release known well."
)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _HELP)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Before a marked test runs, decide where."""
    marker = item.get_closest_marker("hpu")
    if marker is not None:
        from hpu_sim.pytest_plugin import dispatch

        dispatch.install_overrides(item, marker)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Report what a test did in its own process as if it had run here."""
    outcome = yield
    if item.get_closest_marker("hpu") is not None:
        from hpu_sim.pytest_plugin import dispatch

        report = dispatch.get_report(item, call.when)
        if report is not None:
            outcome.force_result(report)
