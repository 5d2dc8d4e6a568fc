"""Run one test in a process that has the simulated machine it asks for."""

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

from hpu_sim import subprocess_env
from hpu_sim.config import LAZY_VARIABLE, REPORT_DETAIL_VARIABLE, REPORT_VARIABLE
from hpu_sim.device_lock import RUNTIME_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpu_sim.config import SimConfig

# Options that choose among tests or say what becomes of all of them together: this one has been chosen.
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
# What a simulated machine in this process, or what started it, left in the environment. A report that is being made is
# about the machine of this process.
_SCRUBBED_ENV: Final = ("HLS_MODULE_ID", "ID", "PYTEST_ADDOPTS", REPORT_DETAIL_VARIABLE, REPORT_VARIABLE)
_MAX_OUTPUT_LINES: Final = 60


@dataclass(frozen=True)
class IsolatedResult:
    """What a test's own process did.

    Attributes:
        reports: Reports of the test's phases.
        start_error: Why it has no simulated machine, or None.
        exit_description: How it ended, in words.
        output: The last lines it printed, apart from what pytest captured.
    """

    reports: tuple[pytest.TestReport, ...]
    start_error: str | None
    exit_description: str
    output: str


def run(item: pytest.Item, config: SimConfig) -> IsolatedResult:
    """Run a test.

    Args:
        item: The test.
        config: The machine.
    """
    with tempfile.TemporaryDirectory(prefix="hpu-sim-test-") as name:
        folder = Path(name)
        results = folder / "results.jsonl"
        results.touch()
        request = folder / "request.json"
        request.write_text(json.dumps(_request(item, results)), encoding="utf-8")
        # Without capturing, what the test prints is to be seen while it runs.
        shown = item.config.getoption("capture", "fd") == "no"
        done = subprocess.run(  # noqa: S603 - our own module under our own interpreter
            [sys.executable, "-m", "hpu_sim.pytest_plugin.child", str(request)],
            cwd=item.config.invocation_params.dir,
            env=_child_env(os.environ, config, folder),
            stdin=subprocess.DEVNULL,
            stdout=None if shown else subprocess.PIPE,
            stderr=None if shown else subprocess.STDOUT,
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
    # The last: the process that started this one prints what is to be said, and keeps what is to be remembered.
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


def _child_env(environment: Mapping[str, str], config: SimConfig, folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if name not in _SCRUBBED_ENV}
    # Its own cards: those of this process's machine may be taken.
    own = {LAZY_VARIABLE: str(int(config.lazy)), RUNTIME_VARIABLE: str(folder / "cards")}
    return {**kept, **subprocess_env.variables(config, kept), **own}


def _reports(config: pytest.Config, lines: list[dict[str, Any]]) -> list[pytest.TestReport]:
    reports = [
        config.hook.pytest_report_from_serializable(config=config, data=_restore_tuples(line["report"]))
        for line in lines
        if "report" in line
    ]
    return [report for report in reports if isinstance(report, pytest.TestReport)]


def _restore_tuples(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report with the tuples that JSON has made lists of."""
    pairs = {name: [tuple(pair) for pair in report[name]] for name in ("sections", "user_properties")}
    longrepr = report["longrepr"]
    return {
        **report,
        **pairs,
        "location": tuple(report["location"]),
        # Where a test was skipped, and why.
        "longrepr": tuple(longrepr) if isinstance(longrepr, list) else longrepr,
    }


def _describe_exit(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code} and no result"
