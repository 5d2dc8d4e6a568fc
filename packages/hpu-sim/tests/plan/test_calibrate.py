"""The command `hpu-sim plan calibrate`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner

from hpu_sim.cli import main

if TYPE_CHECKING:
    from pathlib import Path


def test_it_says_which_ranges_it_narrowed_and_writes_them(tmp_path: Path) -> None:
    points, output = tmp_path / "calibration.json", tmp_path / "mine.json"
    points.write_text(json.dumps([{"id": "item", "kind": "host_read", "bytes": 4, "seconds": 50e-6}]))

    result = CliRunner().invoke(main, ["plan", "calibrate", str(points), "--output", str(output)])

    assert result.exit_code == 0, result.output
    assert "sync_seconds  2e-05 to 0.0001  4.76e-05 to 5.25e-05" in result.output
    assert f"HPU_SIM_CALIBRATION={output}" in result.output
    assert list(json.loads(output.read_text())["ranges"]) == ["sync_seconds"]


def test_a_file_without_measurements_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text("[]")

    result = CliRunner().invoke(main, ["plan", "calibrate", str(path)])

    assert result.exit_code == 1
    assert "has no point that narrows a range" in result.output
