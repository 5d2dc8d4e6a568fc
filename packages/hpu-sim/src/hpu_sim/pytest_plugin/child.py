"""Subprocess of one isolated test: ``python -m hpu_sim.pytest_plugin.child REQUEST``.

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


#: Plugin name of the writer. Only the subprocess of an isolated test has this plugin.
WRITER_NAME: Final = "hpu_sim_report_writer"


class ReportWriter:
    """pytest plugin that forwards every test report to the parent process."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._config: pytest.Config | None = None

    def send(self, message: Mapping[str, Any]) -> None:
        """Append a message to the results file."""
        with self._results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(message) + "\n")

    def pytest_configure(self, config: pytest.Config) -> None:
        """Keep the configuration, which serializes reports."""
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Forward the report of a test phase."""
        if self._config is not None:
            data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
            self.send({"report": data})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Print collection errors, which the parent shows if there is no test report."""
        if report.failed:
            sys.stderr.write(f"{report.longreprtext}\n")


def main(path: Path) -> int:
    """Activate the simulator, run the test and return the exit code of pytest."""
    request = json.loads(path.read_text(encoding="utf-8"))
    # The parent's conftest files may have added to sys.path.
    sys.path[:] = [*request["path"], *(entry for entry in sys.path if entry not in request["path"])]
    writer = ReportWriter(Path(request["results"]))
    try:
        # Since 2.5, importing torch activates the simulator and wraps its errors.
        importlib.import_module("torch")

        from hpu_sim.process.activation import activate_from_environment

        activate_from_environment()
    except (ImportError, RuntimeError) as error:
        writer.send({"start_error": str(error.__cause__ or error).partition("\n")[0]})
        return 1
    # As pytest-xdist starts its workers.
    config = pytest.Config.fromdictargs(request["options"], request["arguments"])
    config.pluginmanager.register(writer, WRITER_NAME)
    return int(config.hook.pytest_cmdline_main(config=config))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
