"""Tests of the processes that hold a card."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpu_doctor.holders import Holder, find_holders


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Folder like /proc in which process 20 holds two devices and process 30 none."""
    folder = tmp_path / "proc"
    for pid, command in ((20, b"python\0train.py\0"), (30, b"bash\0")):
        (folder / str(pid) / "fd").mkdir(parents=True)
        (folder / str(pid) / "cmdline").write_bytes(command)
    for number, target in enumerate(("/dev/accel/accel1", "/dev/hl0", "/dev/accel/accel1", "/dev/null")):
        (folder / "20" / "fd" / str(number)).symlink_to(target)
    (folder / "30" / "fd" / "0").symlink_to("/dev/accel/accel_controlD0")
    (folder / "self").mkdir()
    return folder


def test_holders(proc: Path, tmp_path: Path) -> None:
    module = tmp_path / "class" / "accel" / "accel1" / "device" / "module_id"
    module.parent.mkdir(parents=True)
    module.write_text("7\n")

    assert find_holders(proc, tmp_path / "class")[0] == (
        Holder(pid=20, command="python train.py", node="/dev/accel/accel1", module_id=7),
        Holder(pid=20, command="python train.py", node="/dev/hl0", module_id=None),
    )


@pytest.mark.parametrize(
    ("path", "text", "modules"),
    [
        # The older driver.
        ("habanalabs/hl0", "3\n", [None, 3]),
        ("accel/accel1/device", "\u00b2", [None, None]),
        ("accel/accel1/device", "-1", [None, None]),
        ("accel/accel1/device", "", [None, None]),
    ],
)
def test_module(path: str, text: str, modules: list[int | None], proc: Path, tmp_path: Path) -> None:
    module = tmp_path / "class" / path / "module_id"
    module.parent.mkdir(parents=True)
    module.write_text(text, encoding="utf-8")

    assert [holder.module_id for holder in find_holders(proc, tmp_path / "class")[0]] == modules


def test_process_of_another_user_is_counted(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read every process, so the answer of the system is replaced."""
    iterdir = Path.iterdir

    def deny(path: Path) -> Iterator[Path]:
        if path.name == "fd":
            raise PermissionError
        return iterdir(path)

    (proc / "30" / "cmdline").write_bytes(b"")
    monkeypatch.setattr(Path, "iterdir", deny)

    assert find_holders(proc) == ((), 1)


def test_processes_that_have_exited_and_this_one_are_left_out(proc: Path, tmp_path: Path) -> None:
    (proc / "40").mkdir()
    (proc / "20").rename(proc / str(os.getpid()))

    assert find_holders(proc) == ((), 0)
    assert find_holders(tmp_path / "missing") == ((), 0)
