"""Options of `hpu-sim plan`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from hpu_sim import cli
from hpu_sim.cli import planning as module
from hpu_sim.plan import command

if TYPE_CHECKING:
    from pathlib import Path

_WRONG = [
    (["--set", "speed=1"], "`--set` and `--hardware` must name one of"),
    (["--set", "launch_seconds=fast"], "must be a number"),
    (["--price", "cheap"], "`--price` must be a number, or GENERATION=NUMBER"),
    (["--batch-size", "4,many"], "must be numbers with commas"),
    (["--batch-size", "0"], "`--batch-size` must be at least 1"),
]


@pytest.mark.parametrize(("options", "message"), _WRONG, ids=[" ".join(options) for options, _ in _WRONG])
def test_a_wrong_option_ends_with_2(options: list[str], message: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()

    result = CliRunner().invoke(cli.main, ["plan", *options, str(script)])

    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_there_is_a_script_or_a_model() -> None:
    result = CliRunner().invoke(cli.main, ["plan", "--devices", "2"])

    assert (result.exit_code, "there must be a SCRIPT, or a `--model`" in result.output) == (2, True)


def test_a_file_without_figures_is_refused(tmp_path: Path) -> None:
    script, figures = tmp_path / "train.py", tmp_path / "mine.json"
    script.touch()
    figures.write_text('{"figures": {"speed": 1}}')

    result = CliRunner().invoke(cli.main, ["plan", "--hardware", str(figures), str(script)])

    assert (result.exit_code, "got 'speed'" in " ".join(result.output.split())) == (2, True)


def test_all_combinations_are_planned_and_several_batches_ranked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def run(config: Any, request: command.Request, *args: Any, **kwargs: Any) -> int:
        asked.append(request)
        return 1

    script = tmp_path / "train.py"
    script.touch()
    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(module, "build_device", lambda: "")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    options = ["--strategy", "auto,hpu_fsdp", "--batch-size", "4,8", "--recompute", "0,2", "--price", "GAUDI3=3,2"]

    result = CliRunner().invoke(cli.main, ["plan", *options, "--generation", "GAUDI2,GAUDI3", str(script)])

    (request,) = asked
    assert result.exit_code == 1
    assert [(each.strategy, each.batch_size, each.checkpoint) for each in request.choices] == [
        (strategy, batch, blocks) for strategy in ("auto", "hpu_fsdp") for batch in (4, 8) for blocks in (0, 2)
    ]
    assert (request.generations, request.ranks_best) == (("GAUDI2", "GAUDI3"), True)
    assert request.prices == {"GAUDI3": 3.0, "": 2.0}


@pytest.mark.parametrize(("options", "file"), [(["--json"], "-"), (["--json", "out.json"], "out.json")])
def test_arguments_of_the_script_are_its_own(
    options: list[str], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def run(config: Any, request: command.Request, program: str, arguments: Any, **kwargs: Any) -> int:
        asked.extend([request.json, arguments])
        return 0

    script = tmp_path / "train.py"
    script.touch()
    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(module, "build_device", lambda: "")
    monkeypatch.setattr(os, "environ", dict(os.environ))

    CliRunner().invoke(cli.main, ["plan", *options, str(script), "--json", "data"])

    assert asked == [file, ("--json", "data")]
