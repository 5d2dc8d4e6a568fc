"""Tests of async file I/O for offloading to NVMe, and of the swap directories."""

import errno
import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hpu_deepspeed import _deepspeed, _nvme, _swap_dirs
from hpu_testing import machine_env

BLOCK = 64


@pytest.fixture
def handle() -> _nvme.AioHandle:
    """Return a handle with a small block size, which splits each tensor into several blocks."""
    return _nvme.AioHandle(BLOCK, 4, False, True, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("elements", [0, 1, BLOCK, 1000])
def test_read_returns_what_was_written(
    handle: _nvme.AioHandle, dtype: torch.dtype, elements: int, tmp_path: Path
) -> None:
    written = torch.arange(elements).to(dtype)
    read = torch.empty_like(written)
    (tmp_path / "file").touch()
    handle.async_pwrite(written, str(tmp_path / "file"))
    handle.wait()
    handle.async_pread(read, str(tmp_path / "file"), 0)
    handle.wait()

    assert torch.equal(read, written)


def test_partial_reads_and_writes_are_continued(
    handle: _nvme.AioHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, call in {"preadv": os.preadv, "pwritev": os.pwritev}.items():
        monkeypatch.setattr(os, name, lambda file, buffers, at, call=call: call(file, [buffers[0][:7]], at))
    written = torch.arange(1000, dtype=torch.float32)
    handle.async_pwrite(written, str(tmp_path / "file"))
    handle.wait()
    read = torch.empty_like(written)
    handle.async_pread(read, str(tmp_path / "file"))
    handle.wait()

    assert torch.equal(read, written)


def test_truncated_file_raises(handle: _nvme.AioHandle, tmp_path: Path) -> None:
    """The error names the file, the offset and the number of missing bytes."""
    (tmp_path / "short").write_bytes(bytes(100))
    handle.async_pread(torch.empty(200, dtype=torch.uint8), str(tmp_path / "short"))

    with pytest.raises(OSError, match=r"unexpected end of file at offset 100, 28 bytes missing: '.*short'"):
        handle.wait()


@pytest.mark.parametrize(
    ("submit", "name", "number"),
    [("async_pread", "missing", errno.ENOENT), ("async_pwrite", "missing/file", errno.ENOENT)]
    + ([("async_pwrite", "/dev/full", errno.ENOSPC)] if Path("/dev/full").exists() else []),
)
def test_errors_name_the_file(submit: str, name: str, number: int, handle: _nvme.AioHandle, tmp_path: Path) -> None:
    """The system's own error of a full disk does not."""
    getattr(handle, submit)(torch.ones(8), str(tmp_path / name))

    with pytest.raises(OSError, match=name) as caught:
        handle.wait()
    assert caught.value.errno == number


def test_deepspeed_without_the_patched_names_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation raises before DeepSpeed's setup starts."""
    monkeypatch.setattr(_deepspeed, "has_op", lambda name: False)
    monkeypatch.setattr(_deepspeed, "version", lambda: "0.99")
    monkeypatch.setattr(_nvme, "_SWAPPER_MODULES", ("json",) * 3)

    with pytest.raises(NotImplementedError, match=r"DeepSpeed 0\.99 cannot offload to NVMe on Gaudi"):
        _nvme.validate(_config(tmp_path))


def _config(path: Path, *, optimizer_path: Path | None = None) -> dict[str, Any]:
    return {
        "zero_optimization": {
            "stage": 3,
            "offload_param": {"device": "nvme", "nvme_path": str(path)},
            "offload_optimizer": {"device": "nvme", "nvme_path": str(optimizer_path or path)},
        }
    }


def _create(config: dict[str, Any]) -> list[_swap_dirs.SwapDir]:
    return _swap_dirs.create(config["zero_optimization"][part] for part in ("offload_param", "offload_optimizer"))


def _paths(config: dict[str, Any]) -> set[Path]:
    zero = config["zero_optimization"]
    return {Path(zero[part]["nvme_path"]) for part in ("offload_param", "offload_optimizer")}


def test_each_job_has_its_own_directory(tmp_path: Path) -> None:
    """Two jobs with the same `nvme_path` do not share files, and no other user reads them."""
    configs = [_config(tmp_path), _config(tmp_path)]
    directories = [_create(config) for config in configs]

    assert [[directory.path for directory in created] for created in directories] == [
        list(_paths(config)) for config in configs
    ]
    assert {path.parent for config in configs for path in _paths(config)} == {tmp_path}
    assert _paths(configs[0]) != _paths(configs[1])
    assert {path.stat().st_mode & 0o777 for config in configs for path in _paths(config)} == {0o700}


def test_second_use_of_a_strategy_has_a_directory_beside_the_first(tmp_path: Path) -> None:
    """The configuration names the first one by then."""
    config = _config(tmp_path)
    first, second = _create(config), _create(config)

    assert [directory.path.parent for directory in (*first, *second)] == [tmp_path] * 2
    assert _paths(config) == {second[0].path} != {first[0].path}


def test_offload_to_the_cpu_creates_no_directory(tmp_path: Path) -> None:
    """The configuration is unchanged."""
    config = {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "nvme_path": str(tmp_path)}}}
    _nvme.validate(config)
    _nvme.prepare(config)

    assert config["zero_optimization"]["offload_param"] == {"device": "cpu", "nvme_path": str(tmp_path)}
    assert list(tmp_path.iterdir()) == []


def test_directory_is_removed_with_the_last_handle(tmp_path: Path) -> None:
    """The handles keep the directories that they write to."""
    directories = _create(_config(tmp_path))
    handle = _nvme.aio_builder(directories).load(verbose=False).aio_handle(block_size=BLOCK)
    (directories[0].path / "weights").touch()
    del directories
    gc.collect()
    present = list(tmp_path.iterdir())
    del handle
    gc.collect()

    assert len(present) == 1
    assert list(tmp_path.iterdir()) == []


_CREATE_AND_EXIT = """
import sys
from pathlib import Path
from hpu_deepspeed import _swap_dirs
directories = _swap_dirs.create([{"nvme_path": sys.argv[1]}])
print(sorted(path.name for path in Path(sys.argv[1]).iterdir()), flush=True)
raise RuntimeError("failed")
"""


def test_directory_is_removed_when_the_process_fails(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = [sys.executable, "-W", "ignore", "-c", _CREATE_AND_EXIT, str(disk)]
    result = subprocess.run(command, env=machine_env(1, tmp_path), capture_output=True, check=False, timeout=240)

    assert (result.returncode, bool(result.stdout)) == (1, True), result.stderr
    assert list(disk.iterdir()) == []
