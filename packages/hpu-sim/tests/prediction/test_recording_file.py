"""Files of recordings."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from hpu_sim.cli import main
from hpu_sim.prediction import recording_file
from hpu_sim.prediction.recording import (
    Collective,
    HostRead,
    ModuleBytes,
    Operation,
    Recording,
    StepRecording,
    TensorInfo,
)

if TYPE_CHECKING:
    from pathlib import Path


def _recording() -> Recording:
    operation = Operation(
        "aten.mm",
        "forward",
        "Model.head",
        "float32",
        8,
        ((1, 8),),
        ((2, 16),),
        -5,
        (0,),
    )
    step = StepRecording(
        [operation],
        [Collective("allreduce", "backward", 4, 4, (0, 1), is_async=True, after=1)],
        graph_ends=[1],
        inputs=(TensorInfo("float32", (2, 1), 8),),
        peaks={"backward": (ModuleBytes("Model.head", 0, 28),)},
    )
    return Recording(
        command=("train.py", "--fast"),
        world_size=2,
        devices=2,
        steps=[step],
        lines={"Model.head": "train.py:3"},
        blocks=("Block", 2),
        host_reads=[HostRead("train.py:4", "loss.item()", "_local_scalar_dense", "1.0", 1)],
    )


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "plan.rec"
    recording_file.save([_recording(), _recording()], path)

    assert recording_file.is_recording(path)
    assert recording_file.load(path) == [_recording(), _recording()]


def test_a_script_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")

    assert not recording_file.is_recording(tmp_path / "train.py")


@pytest.mark.parametrize(
    "content", [b"{}", b'{"schema": "other", "recordings": []}', b"[1", b'{"schema":"hpu-sim recording"}']
)
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.gz"
    path.write_bytes(gzip.compress(content))

    with pytest.raises(ValueError, match="must be a script, or a recording that `hpu-sim plan --save` of this version"):
        recording_file.load(path)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.rec"
    recording_file.save([_recording()], path)
    path.write_bytes(path.read_bytes()[:-20])

    with pytest.raises(ValueError, match="must be a script, or a recording"):
        recording_file.load(path)


def test_options_may_follow_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "plan.rec"
    recording_file.save([_recording()], path)

    result = CliRunner().invoke(main, ["plan", str(path), "--generation", "GAUDI3"])

    assert result.exit_code == 0, result.output
    assert "GAUDI3" in result.output
    assert "GAUDI2" not in result.output


def test_generations_of_a_recording_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "plan.rec"
    recording_file.save([_recording()], path)

    result = CliRunner().invoke(main, ["plan", str(path), "--generation", "GAUDI2,GAUDI3", "--json"])

    first, second = json.loads(result.output)["strategies"]
    assert second["step"]["seconds"] < 1.2 * first["step"]["seconds"]
