"""The process of one test: ``python -m hpu_sim.pytest_plugin.child REQUEST``.

:mod:`hpu_sim.pytest_plugin.isolated` starts it.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Name of the plugin that only the process of one test has.
FORWARDER_NAME: Final = "hpu_sim_report_forwarder"


class ReportForwarder:
    """A plugin that sends every report to the process that asked for the test."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._config: pytest.Config | None = None

    def send(self, message: Mapping[str, Any]) -> None:
        """Append an answer to the file."""
        with self._results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(message) + "\n")

    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep the configuration, which turns reports into data."""
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send how a phase of the test went."""
        if self._config is not None:
            data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
            self.send({"report": data})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Print why the test cannot be found, among what is shown when there is no report."""
        if report.failed:
            sys.stderr.write(f"{report.longreprtext}\n")


def main(path: Path) -> int:
    """Start the simulator, then run the test.

    Args:
        path: The request.

    Returns:
        pytest's exit code.
    """
    request = json.loads(path.read_text(encoding="utf-8"))
    # As in the process that asks, whose conftest files may have added to it; the bridge's own folder comes by itself.
    sys.path[:] = [*request["path"], *(entry for entry in sys.path if entry not in request["path"])]
    forwarder = ReportForwarder(Path(request["results"]))
    try:
        # From 2.5 on torch itself starts the simulator; what goes wrong there it wraps in an error of its own.
        importlib.import_module("torch")

        from hpu_sim.activation import activate_from_environment

        activate_from_environment()
    except (ImportError, RuntimeError) as error:
        forwarder.send({"start_error": str(error.__cause__ or error).partition("\n")[0]})
        return 1
    # pytest's way for subprocesses.
    config = pytest.Config.fromdictargs(request["options"], request["arguments"])
    config.pluginmanager.register(forwarder, FORWARDER_NAME)
    return int(config.hook.pytest_cmdline_main(config=config))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
