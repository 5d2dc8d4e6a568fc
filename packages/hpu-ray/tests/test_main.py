"""Tests of `python -m hpu_ray` without a cluster."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("ray.train")

from hpu_ray import __main__ as command


def _run(folder: Path, source: str, *arguments: str) -> None:
    script = folder / "script.py"
    script.write_text(source)
    command._run_script({"script": str(script), "arguments": list(arguments)})


def test_script_gets_its_arguments_and_is_the_main_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [])
    source = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(' '.join([__name__, *sys.argv[2:]]))"
    _run(tmp_path, source, str(tmp_path / "out"), "--lr", "0.1")

    assert (tmp_path / "out").read_text() == "__main__ --lr 0.1"


def test_script_that_exits_with_an_error_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would take SystemExit in the thread of the training function for an end without a result."""
    monkeypatch.setattr(sys, "argv", [])
    _run(tmp_path, "import sys; sys.exit(0)")

    with pytest.raises(RuntimeError, match="exited with 3"):
        _run(tmp_path, "import sys; sys.exit(3)")


def test_options_before_the_script_are_the_commands_own() -> None:
    options = command._parse(["--num-workers", "16", "--max-failures", "2", "train.py", "--num-workers", "1"])

    assert (options.num_workers, options.max_failures, options.script) == (16, 2, "train.py")
    assert options.arguments == ["--num-workers", "1"]
