"""Tests of the command `hpu-doctor`."""

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from packaging.version import Version

from hpu_core.discovery import HPUDevice
from hpu_core.info import SystemInfo
from hpu_doctor import cli
from hpu_doctor.checks import run_checks, to_json
from hpu_doctor.cli import main
from hpu_doctor.collectives import check
from hpu_doctor.machine import Machine

MakeSystem = Callable[..., SystemInfo]
MakeMachine = Callable[..., Machine]

# Before 8.2, click's runner merges both streams by default.
_SEPARATE: dict[str, Any] = {"mix_stderr": False} if Version(metadata.version("click")) < Version("8.2") else {}
_RUNNER = CliRunner(**_SEPARATE)

_ACQUIRED = "RuntimeError: synStatus=20 [Device already acquired] Device acquire failed."


def _explain(*arguments: str, text: str | bytes | None = None) -> Result:
    return _RUNNER.invoke(main, ["explain", *arguments], input=text)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run hpu-doctor on a machine: `on(machine, "--json")`."""

    def run(machine: Machine, *arguments: str) -> Result:
        monkeypatch.setattr(cli, "collect_machine", lambda: machine)
        return _RUNNER.invoke(main, arguments)

    return run


def test_report(on: Callable[..., Result], make_machine: MakeMachine) -> None:
    result = on(make_machine(interface_names="ens1"))

    assert result.exit_code == 1
    assert result.stdout.startswith("Checks of node-1\n")
    assert "Error  network interface  HCCL_SOCKET_IFNAME=ens1" in result.stdout
    assert "Error: HCCL_SOCKET_IFNAME names 'ens1', which does not exist here\n" in result.stdout
    assert result.stdout.endswith("Training cannot start.\n")
    assert result.stdout.isascii()


def test_internal_error_has_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Machine:
        raise KeyError("cards")

    monkeypatch.setattr(cli, "collect_machine", fail)
    result = _RUNNER.invoke(main, ["--json"])

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("hpu-doctor: internal error: KeyError: 'cards'.")


def test_json_is_one_line(on: Callable[..., Result], make_machine: MakeMachine) -> None:
    """A launcher may mix the lines of several machines."""
    machine = make_machine()
    result = on(machine, "--json")

    assert result.stdout.count("\n") == 1
    assert json.loads(result.stdout) == json.loads(json.dumps(to_json(machine, run_checks(machine))))


@pytest.fixture
def reports(make_machine: MakeMachine, make_card: Callable[..., HPUDevice], make_system: MakeSystem) -> tuple[str, str]:
    """Reports of two machines with different drivers, as JSON."""
    other = make_system(devices=tuple(make_card(index, driver_version="1.21.0-9f8e7d6") for index in range(8)))
    machines = (make_machine(), dataclasses.replace(make_machine(), host="node-2", system=other))
    first, second = (json.dumps(to_json(machine, run_checks(machine))) for machine in machines)
    return first, second


def test_compare_files(tmp_path: Path, reports: tuple[str, str]) -> None:
    paths = [tmp_path / "1.json", tmp_path / "2.json"]
    for path, report in zip(paths, reports, strict=True):
        path.write_text(report)
    result = _RUNNER.invoke(main, ["compare", *map(str, paths)])

    assert result.exit_code == 1
    assert result.stdout.startswith("2 machines: node-1,node-2\nError: driver differs\n")
    assert "1.22.0-1a2b3c4 1 machine: node-1" in result.stdout
    assert "1.21.0-9f8e7d6 1 machine: node-2" in result.stdout
    assert result.stdout.endswith("Training cannot start on these machines together.\n")


def test_compare_output_of_a_launcher(tmp_path: Path, reports: tuple[str, str]) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(f"srun: job 7 started\n{reports[0]}\n{reports[1]}\n")
    result = _RUNNER.invoke(main, ["compare", "--json", str(path)])

    assert json.loads(result.stdout)["differences"][0]["name"] == "driver"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare"], "Missing argument 'FILE...'"),
        ([__file__], f"No such command '{__file__}'"),
        (["compare", __file__], "it must have a report of `hpu-doctor --json`, got none"),
    ],
)
def test_usage_error(arguments: list[str], message: str) -> None:
    result = _RUNNER.invoke(main, arguments)

    assert result.exit_code == 2
    assert message in result.stderr


def test_what_libraries_print_is_not_in_the_report_on_collectives(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As gloo, which stands in for HCCL on simulated cards, in torch 2.9."""

    def run_rank(*_: Any, **__: Any) -> dict[str, Any]:
        os.write(1, b"Rank 0 is connected to 1 peer ranks\n")
        return {"ok": True}

    monkeypatch.setattr(cli, "find_launcher_env", object)
    monkeypatch.setattr(check, "run_rank", run_rank)
    monkeypatch.setattr(os, "_exit", sys.exit)
    result = _RUNNER.invoke(main, ["check-collectives", "--json"])

    assert json.loads(result.stdout) == {"ok": True}
    assert capfd.readouterr() == ("", "Rank 0 is connected to 1 peer ranks\n")


@pytest.mark.parametrize(
    ("arguments", "text", "line"),
    [
        (("{folder}/train.log",), None, 2),
        ((), _ACQUIRED, 1),
        (("-",), _ACQUIRED, 1),
        ((), b"\xff\x00\xfe\n" + _ACQUIRED.encode(), 2),
    ],
    ids=["file", "stdin", "-", "binary stdin"],
)
def test_log(arguments: tuple[str, ...], text: str | bytes | None, line: int, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(f"start\n{_ACQUIRED}\n")
    result = _explain(*(each.format(folder=tmp_path) for each in arguments), text=text)

    assert result.exit_code == 0
    assert result.stdout.startswith(f"Line {line}: RuntimeError: synStatus=20")


def test_nothing_known_is_an_error() -> None:
    result = _explain("all is well")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("hpu-doctor: no known error in the text 'all is well'.")
    assert "in the text 'missing.log'" in _explain("missing.log").stderr


@pytest.mark.parametrize("arguments", [("explain", "--json", _ACQUIRED), ("--json", "explain", _ACQUIRED)])
def test_json(arguments: tuple[str, ...]) -> None:
    """The option may precede the command."""
    report = json.loads(_RUNNER.invoke(main, arguments).stdout)

    assert report["schema_version"] == 1
    assert report["errors"][0]["id"] == "device-already-acquired"
    assert report["errors"][0]["on_card"] is True
    assert json.loads(_explain("--json", "all is well").stdout) == {"schema_version": 1, "errors": []}


def test_json_is_written_to_a_file(
    on: Callable[..., Result], make_machine: Callable[..., Machine], tmp_path: Path
) -> None:
    """The input after `--json` stays as it is."""
    first = tmp_path / "node-1.json"
    assert on(make_machine(), f"--json={first}").output == ""
    text = first.read_text()
    result = _RUNNER.invoke(main, ["compare", "--json", str(first)])

    assert json.loads(result.stdout)["hosts"] == ["node-1"]
    assert first.read_text() == text


def test_unreadable_file(tmp_path: Path) -> None:
    result = _explain(str(tmp_path))

    assert result.exit_code == 2
    assert "Is a directory" in result.stderr


def test_file_that_cannot_be_written_is_no_finding(tmp_path: Path) -> None:
    result = _RUNNER.invoke(main, ["explain", f"--json={tmp_path}", _ACQUIRED])

    assert (result.exit_code, "Is a directory" in result.output) == (2, True)
