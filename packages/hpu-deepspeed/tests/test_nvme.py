"""What stands for DeepSpeed's asynchronous I/O, and the folders that it writes to."""

import ast
import errno
import gc
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hpu_deepspeed import _nvme, _swap_folders, _vendor
from hpu_sim.testing import machine_env

BLOCK = 64


@pytest.fixture
def handle() -> _nvme.Handle:
    """One whose blocks are small, so that each tensor has many."""
    return _nvme.Handle(BLOCK, 4, False, True, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("elements", [0, 1, BLOCK, 1000])
def test_what_was_written_is_read(handle: _nvme.Handle, dtype: torch.dtype, elements: int, tmp_path: Path) -> None:
    """Of any type and length, whether it fills its blocks or not."""
    written = torch.arange(elements).to(dtype)
    read = torch.empty_like(written)
    (tmp_path / "file").touch()
    handle.async_pwrite(written, str(tmp_path / "file"))
    handle.wait()
    handle.async_pread(read, str(tmp_path / "file"), 0)
    handle.wait()

    assert torch.equal(read, written)


def test_an_offset_counts_from_the_files_beginning(handle: _nvme.Handle, tmp_path: Path) -> None:
    """In bytes, for reading and for writing."""
    handle.async_pwrite(torch.arange(100, dtype=torch.uint8), str(tmp_path / "file"), 100)
    handle.wait()
    read = torch.empty(50, dtype=torch.uint8)
    handle.async_pread(read, str(tmp_path / "file"), 120)
    handle.wait()

    assert read.tolist() == list(range(20, 70))


def test_tensors_are_counted_and_not_their_blocks(handle: _nvme.Handle, tmp_path: Path) -> None:
    """DeepSpeed compares the number with what it has begun; what was waited for is not counted again."""
    for name in "abc":
        assert handle.async_pwrite(torch.zeros(1000), str(tmp_path / name)) == 0

    assert (handle.wait(), handle.wait()) == (3, 0)


def test_the_system_may_take_it_in_parts(handle: _nvme.Handle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write or a read that stops early is gone on with."""
    whole = {"preadv": os.preadv, "pwritev": os.pwritev}
    for name, transfer in whole.items():
        monkeypatch.setattr(os, name, lambda file, parts, at, go=transfer: go(file, [parts[0][:7]], at))
    written = torch.arange(1000, dtype=torch.float32)
    handle.async_pwrite(written, str(tmp_path / "file"))
    handle.wait()
    read = torch.empty_like(written)
    handle.async_pread(read, str(tmp_path / "file"))
    handle.wait()

    assert torch.equal(read, written)


def test_the_memory_stays_while_it_is_read(
    handle: _nvme.Handle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nobody else keeps the tensor: the system writes there whenever it is ready."""
    preadv, kept = os.preadv, []

    def read(file: int, parts: list[memoryview], at: int) -> int:
        array: Any = parts[0].obj
        kept.append(array.owner.data_ptr())
        return preadv(file, parts, at)

    monkeypatch.setattr(os, "preadv", read)
    (tmp_path / "file").write_bytes(bytes(4 * BLOCK))
    buffer = torch.empty(BLOCK)
    address = buffer.data_ptr()
    handle.async_pread(buffer, str(tmp_path / "file"))
    del buffer
    handle.wait()

    assert kept == [address] * 4


def test_a_file_that_ends_too_early_is_an_error(handle: _nvme.Handle, tmp_path: Path) -> None:
    """It says how much is missing, and of which file."""
    (tmp_path / "short").write_bytes(bytes(100))
    handle.async_pread(torch.empty(200, dtype=torch.uint8), str(tmp_path / "short"))

    with pytest.raises(OSError, match=r"28 bytes are missing from 100 on, where the file ends: '.*short'"):
        handle.wait()


def test_a_file_that_has_gone_is_an_error(handle: _nvme.Handle, tmp_path: Path) -> None:
    """It names the file."""
    handle.async_pread(torch.empty(8), str(tmp_path / "gone"))

    with pytest.raises(FileNotFoundError, match="gone"):
        handle.wait()


def test_a_folder_that_has_gone_is_an_error(handle: _nvme.Handle, tmp_path: Path) -> None:
    """When a tensor is written, too."""
    handle.async_pwrite(torch.empty(8), str(tmp_path / "gone" / "file"))

    with pytest.raises(FileNotFoundError, match="gone/file"):
        handle.wait()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_an_error(handle: _nvme.Handle) -> None:
    """It names the file, which the system's own error does not."""
    handle.async_pwrite(torch.ones(8), "/dev/full")

    with pytest.raises(OSError, match="/dev/full") as caught:
        handle.wait()
    assert caught.value.errno == errno.ENOSPC


def test_after_an_error_it_goes_on(handle: _nvme.Handle, tmp_path: Path) -> None:
    """What was begun before it has ended, and is not counted later."""
    handle.async_pread(torch.empty(8), str(tmp_path / "gone"))
    handle.async_pwrite(torch.ones(8), str(tmp_path / "file"))
    with pytest.raises(FileNotFoundError):
        handle.wait()
    handle.async_pwrite(torch.ones(8), str(tmp_path / "file"))

    assert handle.wait() == 1


def test_it_has_what_deepspeed_asks_of_it() -> None:
    """Every method of a handle that the installed DeepSpeed calls where it offloads, but for those of other devices."""
    spec = importlib.util.find_spec("deepspeed")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "runtime" / "swap_tensor"
    asked = {
        node.attr
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and "handle" in ast.unparse(node.value).rpartition(".")[2]
    }

    assert {"async_pread", "async_pwrite", "wait"} <= asked
    assert asked - {"pin_device_tensor"} <= set(dir(_nvme.Handle))


def test_a_deepspeed_that_does_it_elsewhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than to find out in the middle of the set-up."""
    monkeypatch.setattr(_vendor, "has_op", lambda name: False)
    monkeypatch.setattr(_vendor, "version", lambda: "0.99")
    monkeypatch.setattr(_nvme, "_SWAPPERS", ("json",) * 3)

    with pytest.raises(NotImplementedError, match=r"DeepSpeed 0\.99 cannot offload to NVMe on Gaudi"):
        _nvme.check(_config(tmp_path))


def test_deepspeeds_own_operator_is_left_in_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where a DeepSpeed has one for Gaudi, nothing is replaced."""
    monkeypatch.setattr(_vendor, "has_op", lambda name: True)
    monkeypatch.setattr(_nvme, "_SWAPPERS", ("no.such.module",))
    monkeypatch.setattr(_nvme, "_read_each_once", lambda: None)

    _nvme.check(_config(tmp_path))
    _nvme.prepare(_config(tmp_path))


def _config(path: Path, *, further: Path | None = None) -> dict[str, Any]:
    return {
        "zero_optimization": {
            "stage": 3,
            "offload_param": {"device": "nvme", "nvme_path": str(path)},
            "offload_optimizer": {"device": "nvme", "nvme_path": str(further or path)},
        }
    }


def _make(config: dict[str, Any]) -> list[_swap_folders.Folder]:
    return _swap_folders.make(config["zero_optimization"][part] for part in ("offload_param", "offload_optimizer"))


def _paths(config: dict[str, Any]) -> set[Path]:
    zero = config["zero_optimization"]
    return {Path(zero[part]["nvme_path"]) for part in ("offload_param", "offload_optimizer")}


def test_a_process_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Two trainings that are given the same folder do not meet in it."""
    configs = [_config(tmp_path), _config(tmp_path)]
    folders = [_make(config) for config in configs]

    assert [[folder.path for folder in made] for made in folders] == [list(_paths(config)) for config in configs]
    assert {path.parent for config in configs for path in _paths(config)} == {tmp_path}
    assert _paths(configs[0]) != _paths(configs[1])


def test_two_disks_have_a_folder_each(tmp_path: Path) -> None:
    """Parameters may go to one and the optimizer to another."""
    (tmp_path / "other").mkdir()
    config = _config(tmp_path, further=tmp_path / "other")
    folders = _make(config)

    assert {path.parent for path in _paths(config)} == {tmp_path, tmp_path / "other"}
    assert len(folders) == 2


def test_a_strategy_that_is_used_again_gets_a_new_folder(tmp_path: Path) -> None:
    """Beside the first, which a module that was trained before may need still."""
    config = _config(tmp_path)
    first = _make(config)
    second = _make(config)

    assert {folder.path.parent for folder in first + second} == {tmp_path}
    assert first[0].path != second[0].path


def test_without_nvme_nothing_is_made(tmp_path: Path) -> None:
    """Nor is the configuration changed."""
    config = {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "nvme_path": str(tmp_path)}}}
    _nvme.check(config)
    _nvme.prepare(config)

    assert config["zero_optimization"]["offload_param"] == {"device": "cpu", "nvme_path": str(tmp_path)}
    assert list(tmp_path.iterdir()) == []


def test_the_folder_goes_with_the_last_that_needs_it(tmp_path: Path) -> None:
    """Which are the handles that write to it."""
    folders = _make(_config(tmp_path))
    handle = _nvme.Builder(folders).load(verbose=False).aio_handle(block_size=BLOCK)
    (folders[0].path / "weights").touch()
    del folders
    gc.collect()
    kept = list(tmp_path.iterdir())
    del handle
    gc.collect()

    assert len(kept) == 1
    assert list(tmp_path.iterdir()) == []


_MAKING = """
import os, signal, sys
from pathlib import Path
from hpu_deepspeed import _swap_folders
folders = _swap_folders.make([{"nvme_path": sys.argv[1]}])
print(sorted(path.name for path in Path(sys.argv[1]).iterdir()), flush=True)
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
raise RuntimeError("failed")
"""


def _making(folder: Path, end: str, cards: Path) -> int:
    command = [sys.executable, "-W", "ignore", "-c", _MAKING, str(folder), end]
    done = subprocess.run(command, env=machine_env(1, cards), capture_output=True, check=False, timeout=240)
    assert done.stdout, done.stderr
    return done.returncode


def test_the_folder_goes_with_a_process_that_fails(tmp_path: Path) -> None:
    """Whatever it fails of."""
    (tmp_path / "disk").mkdir()

    assert _making(tmp_path / "disk", "fail", tmp_path) == 1
    assert list((tmp_path / "disk").iterdir()) == []


def test_what_a_killed_process_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """And what belongs to a living one, or to somebody else, is not."""
    disk = tmp_path / "disk"
    (disk / "models").mkdir(parents=True)
    living = _make(_config(disk))
    _making(disk, "kill", tmp_path)
    left = len(list(disk.iterdir()))
    following = _make(_config(disk))

    assert left == 3
    assert set(disk.iterdir()) == {disk / "models", living[0].path, following[0].path}


def test_what_a_killed_process_has_left_is_removed_with_anothers(tmp_path: Path) -> None:
    """As where a rank fails and the launcher kills the others."""
    disk = tmp_path / "disk"
    disk.mkdir()
    living = _make(_config(disk))
    _making(disk, "kill", tmp_path)
    left = len(list(disk.iterdir()))
    del living
    gc.collect()

    assert left == 2
    assert list(disk.iterdir()) == []


def test_locks_may_be_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a network file system; then nothing is removed of others."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    first = _make(_config(tmp_path))
    monkeypatch.setattr("fcntl.flock", refuse)
    second = _make(_config(tmp_path))

    assert set(tmp_path.iterdir()) == {first[0].path, second[0].path}
