"""Options, output paths, and failures that leave what was there."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hpu_export import ExportOptions, export_checkpoint


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
        ({"adapter": "drop"}, "`adapter` must be 'keep', 'merge' or None"),
        ({"adapter": "keep"}, "`model` must be the adapter's base model"),
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
    with pytest.raises(FileExistsError, match="`overwrite` replaces exports only"):
        export_checkpoint(source, tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_overwrite_replaces_an_export(source: Path, tmp_path: Path) -> None:
    out = export_checkpoint(source, tmp_path / "out")
    export_checkpoint(source, out, overwrite=True, dtype="bf16")
    assert load_file(out / "model.safetensors")["weight"].dtype is torch.bfloat16


def test_a_source_is_not_overwritten(source: Path, tmp_path: Path) -> None:
    out = export_checkpoint(source, tmp_path / "out")
    with pytest.raises(ValueError, match="`to` must not be or contain the source"):
        export_checkpoint(out, out, overwrite=True)


def test_a_full_disk_leaves_the_earlier_export(source: Path, tmp_path: Path) -> None:
    """A limit of the file size stands for the disk: the error comes from the same write."""
    out = export_checkpoint(source, tmp_path / "out", dtype="bf16")
    before = sorted(tmp_path.iterdir())
    program = (
        "import resource, sys; from hpu_export.cli import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000)); sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, str(source), "--to", str(out), "--overwrite"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    reason = os.strerror(errno.EFBIG)
    assert f"cannot write the export, nothing has changed there: {reason}" in done.stderr.splitlines()[-1]
    assert sorted(tmp_path.iterdir()) == before
    assert load_file(out / "model.safetensors")["weight"].dtype is torch.bfloat16


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """File system of one MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder],  # noqa: S607 - the system's
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("only root may mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)  # noqa: S607 - as above


def test_a_disk_that_fills_up_is_named(small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"weight": torch.zeros(2**19)}, tmp_path / "large.ckpt")
    # As if another program had filled the disk after the check.
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 2**30}))
    with pytest.raises(OSError, match="cannot write the export, nothing has changed there: No space left on device"):
        export_checkpoint(tmp_path / "large.ckpt", small_disk / "out")
    assert list(small_disk.iterdir()) == []


def test_an_export_that_does_not_fit_on_the_disk_is_not_started(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(OSError, match="bytes free, got 1,000: nothing was written"):
        export_checkpoint(source, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [source]


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
