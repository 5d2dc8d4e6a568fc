"""Options, output paths, and failures that leave what was there."""

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hpu_export import ExportOptions, export_checkpoint
from hpu_export.cli import main
from hpu_testing.kills import limited_files


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Checkpoint of 400 kB."""
    torch.save({"weight": torch.ones(100_000)}, tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "`dtype` must be one of 'float32'"),
        ({"weights": "best"}, "`weights` must be 'averaged' or 'current'"),
        ({"adapter": True}, "`model` must be the adapter's base model"),
        ({"ignore": "loss"}, "`ignore` must be a list of patterns"),
        ({"max_shard_size": "5"}, ""),
        ({"max_shard_size": "five"}, "`max_shard_size` must be a number and a unit"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    if not message:
        ExportOptions(**options)
        return
    with pytest.raises(ValueError, match=message):
        ExportOptions(**options)


def test_an_existing_target_stays(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")

    with pytest.raises(FileExistsError, match="`to` must not exist, got"):
        export_checkpoint(source, tmp_path / "out")
    with pytest.raises(FileExistsError, match="`overwrite` replaces a file"):
        export_checkpoint(source, tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def _folder(path: Path, kind: str) -> Path:
    """Make a folder with safetensors that is no export, or more than one."""
    path.mkdir()
    save_file({"weight": torch.ones(1)}, path / "model.safetensors")
    (path / "README.md").write_text("mine" if kind == "a model of others" else "Exported by hpu-export 0.1.0.")
    if kind == "an export with a file of the user":
        (path / "train.py").write_text("mine")
    elif kind == "an export with a folder":
        (path / "checkpoints").mkdir()
    elif kind == "an export with a link":
        (path / "tokenizer.json").symlink_to(path / "README.md")
    return path


@pytest.mark.parametrize(
    "kind",
    ["a model of others", "an export with a file of the user", "an export with a folder", "an export with a link"],
)
def test_overwrite_keeps_what_is_no_export(kind: str, source: Path, tmp_path: Path) -> None:
    out = _folder(tmp_path / "out", kind)
    before = sorted(out.rglob("*"))

    with pytest.raises(FileExistsError, match=r"`overwrite` replaces a file .* or a folder that hpu-export"):
        export_checkpoint(source, out, overwrite=True)
    assert sorted(out.rglob("*")) == before


@pytest.mark.parametrize("to", ["base", ".", "base/model.safetensors"])
@pytest.mark.parametrize("option", ["model", "adapter_config"])
def test_overwrite_keeps_what_it_reads(option: str, to: str, source: Path, tmp_path: Path) -> None:
    base = _folder(tmp_path / "base", "an export")
    options = {"model": base, option: base, "adapter": option == "adapter_config"}

    with pytest.raises(ValueError, match=r"`to` must (not be|be a folder)"):
        export_checkpoint(source, tmp_path / to, overwrite=True, **options)
    assert (base / "model.safetensors").is_file()


def test_overwrite_replaces_an_export(source: Path, tmp_path: Path) -> None:
    out = export_checkpoint(source, tmp_path / "out")
    export_checkpoint(source, out, overwrite=True, dtype="bf16")
    assert load_file(out / "model.safetensors")["weight"].dtype is torch.bfloat16


def test_a_source_is_not_overwritten(source: Path, tmp_path: Path) -> None:
    out = export_checkpoint(source, tmp_path / "out")
    with pytest.raises(ValueError, match="`to` must not be or contain the source"):
        export_checkpoint(out, out, overwrite=True)


def test_a_full_disk_leaves_the_earlier_export(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit of the file size stands for the disk: the error comes from the same write."""
    out = export_checkpoint(source, tmp_path / "out", dtype="bf16")
    before = sorted(tmp_path.iterdir())
    with limited_files(300_000):
        code = main([str(source), "--to", str(out), "--overwrite"])

    assert code == 2
    reason = os.strerror(errno.EFBIG)
    assert f"cannot write the export, nothing has changed there: {reason}" in capsys.readouterr().err.splitlines()[-1]
    assert sorted(tmp_path.iterdir()) == before
    assert load_file(out / "model.safetensors")["weight"].dtype is torch.bfloat16


def test_memory_is_bounded_by_the_largest_tensor(tmp_path: Path) -> None:
    """A checkpoint of sixteen tensors is exported with the memory of a few."""
    size = 4 * 2**20
    torch.save({str(i): torch.ones(size) for i in range(16)}, tmp_path / "last.ckpt")
    program = (
        "import re, sys; from pathlib import Path; from hpu_export import export, sources;"
        "peak = lambda: int(re.search(r'RssAnon:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]);"
        "before = peak(); values = [];"
        "from hpu_export import writer; write = writer._memory;"
        "writer._memory = lambda tensor: values.append(peak()) or write(tensor);"
        "export.export_checkpoint(sys.argv[1], sys.argv[2], dtype='bf16'); print(max(values) - before)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "last.ckpt"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    # In KiB; the checkpoint has 16 times 16 MiB.
    assert int(done.stdout) < 6 * 16 * 1024, done.stdout


def test_model_card_has_no_text_of_the_run(tmp_path: Path) -> None:
    """Hyperparameters can have tokens, and paths with names of users."""
    texts = {"hub": "hf_abcdef", "data": "/home/ann/data", "wandb_api_key": 12345, "password": 1, "nested": {"a": "b"}}
    parameters = {"lr": 0.5, "bias": True, "max_tokens": 512, **texts}
    torch.save({"state_dict": {"weight": torch.ones(1)}, "hyper_parameters": parameters}, tmp_path / "last.ckpt")
    card = (export_checkpoint(tmp_path / "last.ckpt", tmp_path / "out") / "README.md").read_text()

    assert "| lr | 0.5 |\n| bias | True |\n| max_tokens | 512 |\n" in card
    assert not any(name in card for name in texts)
