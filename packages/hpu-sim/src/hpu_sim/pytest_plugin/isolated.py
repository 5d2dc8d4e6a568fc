"""Isolated execution of one test, in a subprocess with its own simulated machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from hpu_sim.device import machine_id
from hpu_sim.device.config import LAZY_VARIABLE, REPORT_VARIABLE
from hpu_sim.device.machine_id import MACHINE_VARIABLE, RUNTIME_VARIABLE
from hpu_sim.process import subprocess_env

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpu_sim.device.config import SimConfig

# Options that select tests or concern the whole run. The test is already selected.
_PARENT_ONLY_OPTIONS: Final = frozenset(
    {
        "basetemp",
        "cacheclear",
        "cacheshow",
        "collectonly",
        "deselect",
        "dist",
        "failedfirst",
        "file_or_dir",
        "ignore",
        "ignore_glob",
        "inifilename",
        "keyword",
        "lf",
        "log_file",
        "looponfail",
        "markexpr",
        "maxfail",
        "newfirst",
        "numprocesses",
        "plugins",
        "pyargs",
        "rootdir",
        "stepwise",
        "stepwise_skip",
        "tx",
        "usepdb",
        "xmlpath",
    }
)
# Variables of the simulated machine or the launcher of this process. HPU_SIM_REPORT covers only this process.
_REMOVED_ENV: Final = (
    "HLS_MODULE_ID",
    "ID",
    "PYTEST_ADDOPTS",
    REPORT_VARIABLE,
    RUNTIME_VARIABLE,
)
_MAX_OUTPUT_LINES: Final = 60


@dataclass(frozen=True)
class IsolatedResult:
    """Result of an isolated test.

    Attributes:
        reports: Reports of the test phases.
        start_error: Error that prevented activation of the simulator, if any.
        exit_description: Exit status of the subprocess.
        output: Last lines of uncaptured output.
    """

    reports: tuple[pytest.TestReport, ...]
    start_error: str | None
    exit_description: str
    output: str


def run(item: pytest.Item, config: SimConfig) -> IsolatedResult:
    """Run a test in a subprocess."""
    with tempfile.TemporaryDirectory(prefix="hpu-sim-test-") as name:
        folder = Path(name)
        results = folder / "results.jsonl"
        results.touch()
        request = folder / "request.json"
        request.write_text(json.dumps(_request(item, results)), encoding="utf-8")
        # With --capture=no, output appears while the test runs.
        inherit_output = item.config.getoption("capture", "fd") == "no"
        done = subprocess.run(  # noqa: S603 - our own module under our own interpreter
            [sys.executable, "-m", "hpu_sim.pytest_plugin.child", str(request)],
            cwd=item.config.invocation_params.dir,
            env=_child_env(os.environ, config),
            stdin=subprocess.DEVNULL,
            stdout=None if inherit_output else subprocess.PIPE,
            stderr=None if inherit_output else subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return IsolatedResult(
        reports=tuple(_reports(item.config, lines)),
        start_error=next((line["start_error"] for line in lines if "start_error" in line), None),
        exit_description=_describe_exit(done.returncode),
        output="\n".join((done.stdout or "").splitlines()[-_MAX_OUTPUT_LINES:]),
    )


def _request(item: pytest.Item, results: Path) -> dict[str, Any]:
    config = item.config
    arguments = [f"{item.path}::{item.nodeid.partition('::')[2]}", "--rootdir", str(config.rootpath)]
    if config.inipath is not None:
        arguments += ["-c", str(config.inipath)]
    for plugin in config.getoption("plugins", []):
        arguments += ["-p", plugin]
    # Last, to take precedence: the parent owns terminal output and the cache.
    arguments += ["-p", "no:terminal", "-p", "no:cacheprovider", f"--capture={config.getoption('capture', 'fd')}"]
    options = {name: value for name, value in vars(config.option).items() if name not in _PARENT_ONLY_OPTIONS}
    return {
        "results": str(results),
        "arguments": arguments,
        "options": {name: value for name, value in options.items() if _is_json_type(value)},
        "path": [entry for entry in sys.path if entry],
    }


def _is_json_type(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_json_type, value))
    return value is None or isinstance(value, bool | int | float | str)


def _child_env(environment: Mapping[str, str], config: SimConfig) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if name not in _REMOVED_ENV}
    # A machine of its own: the devices of this process may be in use.
    own = {LAZY_VARIABLE: str(int(config.lazy)), MACHINE_VARIABLE: machine_id.new()}
    return {**kept, **subprocess_env.variables(config, kept), **own}


def _reports(config: pytest.Config, lines: list[dict[str, Any]]) -> list[pytest.TestReport]:
    reports = [
        config.hook.pytest_report_from_serializable(config=config, data=_restore_tuples(line["report"]))
        for line in lines
        if "report" in line
    ]
    return [report for report in reports if isinstance(report, pytest.TestReport)]


def _restore_tuples(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report with the tuples that JSON encoded as lists."""
    pairs = {name: [tuple(pair) for pair in report[name]] for name in ("sections", "user_properties")}
    longrepr = report["longrepr"]
    return {
        **report,
        **pairs,
        "location": tuple(report["location"]),
        # A tuple (path, line, reason) for skipped tests.
        "longrepr": tuple(longrepr) if isinstance(longrepr, list) else longrepr,
    }


def _describe_exit(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code} and no result"
