"""The command on simulated cards."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from one_assumption import TARGET, make_assumption

from hpu_core import bridge, info
from hpu_doctor.cli import main
from hpu_doctor.verify import command, runner
from hpu_doctor.verify.runner import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_core.info import SystemInfo

pytestmark = pytest.mark.usefixtures("forks")


def test_report_of_simulated_cards(tmp_path: Path) -> None:
    """Nothing is written outside its folder."""
    home = tmp_path / "home"
    home.mkdir()
    folder = tmp_path / "report"
    # The compiled device is the simulator's, in a folder of this user.
    cache = os.environ.get("HPU_SIM_CACHE") or str(Path.home() / ".cache" / "hpu-sim")
    environ = {**os.environ, "HPU_SIM_DEVICES": "2", "HOME": str(home), "HPU_SIM_CACHE": cache}
    command = [sys.executable, "-m", "hpu_doctor", "verify", "--out", str(folder), "--only", "memory-stats-keys"]

    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"home", "report"}
    assert list(home.iterdir()) == []
    assert {path.name for path in folder.iterdir()} == {"report.json", "report.txt"}


def test_folder_must_be_empty(tmp_path: Path) -> None:
    (tmp_path / "old.txt").touch()

    result = CliRunner().invoke(main, ["verify", "--out", str(tmp_path)])

    assert result.exit_code == 2
    assert "`--out` must be a new or empty folder" in result.output


@pytest.fixture
def run_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simulated_system: SystemInfo
) -> Callable[..., dict[str, Any]]:
    """Return a function that tries two assumptions, of which the programs are an outcome or an error."""
    monkeypatch.setattr(info, "collect", lambda: simulated_system)
    monkeypatch.setattr(bridge, "is_installed", lambda: True)
    monkeypatch.setattr(runner.Target, "of", lambda _: TARGET)
    assumptions = [make_assumption(id="first"), make_assumption(id="second")]

    def run(error: BaseException | None = None) -> dict[str, Any]:
        def results(*_: object, **__: object) -> Iterator[Outcome]:
            yield Outcome(assumption=assumptions[0], state="holds", seen=1)
            if error is not None:
                raise error
            yield Outcome(assumption=assumptions[1], state="holds", seen=1)

        monkeypatch.setattr(runner, "run", results)
        return command.run(assumptions, tmp_path / "report", {})

    return run


def test_report_has_what_was_tried(run_two: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    found = run_two(KeyboardInterrupt())
    first, second = found["entries"]

    assert not command.is_complete(found)
    assert (first["state"], second["state"], second["reason"]) == ("holds", "not tried", "the run was interrupted")
    assert json.loads((tmp_path / "report" / "report.json").read_text())["counts"] == {
        "differs": 0,
        "not tried": 1,
        "holds": 1,
    }
    assert not list(tmp_path.rglob(".scratch-*"))


@pytest.mark.parametrize("arguments", [["verify", "--json"], ["--json", "verify"]])
def test_report_is_printed_as_json(
    run_two: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """As of each command."""
    found = run_two()
    monkeypatch.setattr(command, "run", lambda *_, **__: found)

    result = CliRunner().invoke(main, [*arguments, "--out", str(tmp_path / "other")])
    assert (result.exit_code, json.loads(result.output)) == (0, found)


@pytest.mark.parametrize(("installed", "message"), [(False, "needs a card and the bridge"), (True, "run `hpu-info`")])
def test_machine_without_a_card(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    simulated_system: SystemInfo,
    installed: bool,
    message: str,
) -> None:
    monkeypatch.setattr(info, "collect", lambda: simulated_system)
    monkeypatch.setattr(bridge, "is_installed", lambda: installed)
    monkeypatch.setattr(runner.Target, "of", lambda _: dataclasses.replace(TARGET, cards=0))

    result = CliRunner().invoke(main, ["verify", "--out", str(tmp_path / "report")])

    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_unknown_id() -> None:
    with pytest.raises(ValueError, match="`--only` must be an id of the register, got 'no-such'"):
        command.choose(["no-such"])
