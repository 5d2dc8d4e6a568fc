"""The command."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hpu_export.cli import main


def test_a_checkpoint_is_exported(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(4)}, tmp_path / "last.ckpt")
    code = main([str(tmp_path / "last.ckpt"), "--to", str(tmp_path / "out.safetensors"), "--dtype", "bf16"])
    assert code == 0
    assert load_file(tmp_path / "out.safetensors")["weight"].dtype is torch.bfloat16


def test_a_log_has_a_line_for_each_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch.save({str(i): torch.ones(300) for i in range(3)}, tmp_path / "last.ckpt")
    main([str(tmp_path / "last.ckpt"), "--to", str(tmp_path / "out"), "--max-shard-size", "2KB"])
    assert [record.message.rpartition("/")[2] for record in caplog.records] == [
        f"model-0000{i}-of-00003.safetensors, 1 tensors, 1,200 bytes" for i in (1, 2, 3)
    ]


def test_an_error_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.ckpt"), "--to", str(tmp_path / "out")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("hpu-export: error: the checkpoint must exist, got")
