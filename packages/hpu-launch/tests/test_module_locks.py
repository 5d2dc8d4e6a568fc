"""Tests of the choice of free modules."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpu_core import discovery
from hpu_core.discovery import Holder, Holders, HPUDevice, NoHPUError, ScanResult
from hpu_launch import free_modules, module_locks
from hpu_testing import machine_env

_HOLDER = Holder(pid=4711, command="python train.py", node="/dev/accel/accel0", module_id=0)


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of the locks, which the test gives back at its end."""
    folder = tmp_path / "locks"
    monkeypatch.setenv("HPU_MODULE_LOCKS", str(folder))
    monkeypatch.delenv("HABANA_VISIBLE_MODULES", raising=False)
    monkeypatch.setattr(module_locks, "_locked", {})
    yield folder
    for descriptor in module_locks._locked.values():
        os.close(descriptor)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with four free devices."""
    devices = tuple(HPUDevice(index=index, module_id=index, status="Operational", source="sysfs") for index in range(4))
    monkeypatch.setattr(discovery, "scan", lambda: ScanResult(devices=devices))
    monkeypatch.setattr(discovery, "find_holders", Holders)
    monkeypatch.setattr(discovery, "used_modules", frozenset)


@pytest.fixture
def other_process(locks: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which has locked modules 0 and 1."""
    program = (
        "import sys; from pathlib import Path; from hpu_core.discovery import Holders;"
        "from hpu_launch import module_locks;"
        f"print(module_locks._take(2, range(4), Holders(), folder=Path({str(locks)!r})), flush=True);"
        "sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "(0, 1)\n"
        yield process
        process.kill()


def test_free_modules() -> None:
    assert free_modules(2) == (0, 1)


def test_environment_is_unchanged() -> None:
    before = dict(os.environ)
    free_modules(2)

    assert dict(os.environ) == before


def test_second_call_takes_other_modules() -> None:
    assert (free_modules(1), free_modules(2)) == ((0,), (1, 2))


def test_visible_modules_limit_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "3,1")

    assert free_modules(2) == (3, 1)


def test_held_device_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "find_holders", lambda: Holders(processes=(_HOLDER,)))

    assert free_modules(1) == (1,)


def test_device_whose_memory_is_used_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "used_modules", lambda: frozenset({0, 2}))

    assert free_modules(2) == (1, 3)


def test_modules_of_another_process_are_skipped(other_process: subprocess.Popen[str]) -> None:
    assert free_modules(2) == (2, 3)


def test_modules_of_a_killed_process_are_free(other_process: subprocess.Popen[str]) -> None:
    other_process.kill()
    other_process.wait()

    assert free_modules(2) == (0, 1)


def test_error_names_the_owner_of_a_lock(other_process: subprocess.Popen[str]) -> None:
    with pytest.raises(RuntimeError, match=rf"module 0 by pid {other_process.pid} \(-c\), module 1 by pid"):
        free_modules(3)


def test_error_names_the_process_that_holds_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "find_holders", lambda: Holders(processes=(_HOLDER,), unreadable=2))

    with pytest.raises(
        RuntimeError,
        match=r"`n` must be at most 3, the number of free cards, got 4; "
        r"held: module 0 by pid 4711 \(python train.py\)\. Processes of other users that could not be inspected: 2\.",
    ):
        free_modules(4)


def test_failed_call_keeps_no_module() -> None:
    with pytest.raises(RuntimeError, match="at most 4"):
        free_modules(5)

    assert free_modules(4) == (0, 1, 2, 3)


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "scan", lambda: ScanResult(devices=()))

    with pytest.raises(NoHPUError):
        free_modules(1)


@pytest.mark.parametrize("number", [0, -1])
def test_number_below_one(number: int) -> None:
    with pytest.raises(ValueError, match="`n` must be a positive int"):
        free_modules(number)


@pytest.mark.parametrize("number", [True, "1", 1.0])
def test_number_of_another_type(number: object) -> None:
    with pytest.raises(TypeError, match="`n` must be a positive int"):
        free_modules(number)  # type: ignore[arg-type]


def test_every_user_can_lock(locks: Path) -> None:
    """The umask does not apply."""
    before = os.umask(0o077)
    try:
        free_modules(1)
    finally:
        os.umask(before)

    assert oct(locks.stat().st_mode & 0o7777) == "0o1777"
    assert oct((locks / "module-0").stat().st_mode & 0o777) == "0o666"


def test_link_in_place_of_a_lock_is_refused(locks: Path, tmp_path: Path) -> None:
    """Another user could have put it there."""
    locks.mkdir()
    target = tmp_path / "precious"
    target.write_text("data")
    (locks / "module-0").symlink_to(target)

    with pytest.raises(OSError, match="module-0"):
        free_modules(1)
    assert target.read_text() == "data"


@pytest.fixture
def simulated_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated machine with two devices."""
    devices = tuple(HPUDevice(index=index, status="Operational", simulated=True, source="bridge") for index in range(2))
    monkeypatch.setattr(discovery, "scan", lambda: ScanResult(devices=devices))


@pytest.mark.usefixtures("simulated_machine")
def test_simulated_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of the real machine do not matter."""
    monkeypatch.setattr(discovery, "find_holders", lambda: Holders(processes=(_HOLDER,)))

    assert free_modules(2) == (0, 1)
    with pytest.raises(RuntimeError, match="at most 0"):
        free_modules(1)


@pytest.mark.usefixtures("simulated_machine")
def test_simulated_machines_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPU_SIM_MACHINE", "a")
    assert free_modules(2) == (0, 1)

    monkeypatch.setenv("HPU_SIM_MACHINE", "b")
    assert free_modules(2) == (0, 1)


def test_folder_that_is_a_link_of_another_user_is_refused(
    locks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In /tmp, anybody can put a link to a folder of this user there before the first job does."""
    (tmp_path / "documents").mkdir()
    locks.symlink_to("documents")
    monkeypatch.setattr(os, "geteuid", lambda: locks.lstat().st_uid + 1)
    if locks.lstat().st_uid == 0:
        os.lchown(locks, 1, 1)

    with pytest.raises(PermissionError, match="is a link of another user: set HPU_MODULE_LOCKS"):
        module_locks._take(1, range(4), Holders(), folder=locks)
    assert list((tmp_path / "documents").iterdir()) == []


def test_folder_that_is_a_link_of_this_user_is_used(locks: Path, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    locks.symlink_to("shared")

    assert module_locks._take(1, range(4), Holders(), folder=locks) == (0,)


@pytest.mark.parametrize("kind", ["hard link", "pipe"])
def test_lock_that_is_not_a_file_of_its_own_is_refused(kind: str, locks: Path, tmp_path: Path) -> None:
    document = tmp_path / "document"
    document.write_text("content", encoding="utf-8")
    locks.mkdir()
    if kind == "pipe":
        os.mkfifo(locks / "module-0")
    else:
        (locks / "module-0").hardlink_to(document)

    with pytest.raises(PermissionError, match="is not a file of its own"):
        module_locks._take(1, range(4), Holders(), folder=locks)
    assert document.read_text(encoding="utf-8") == "content"


def test_modules_of_the_simulator(tmp_path: Path) -> None:
    """A module that was returned is no longer free."""
    program = (
        "from hpu_launch import free_modules\n"
        "print(free_modules(2), flush=True)\n"
        "try:\n    free_modules(1)\nexcept RuntimeError as error:\n    print(error)\n"
    )
    environment = machine_env(2, tmp_path, HPU_MODULE_LOCKS=str(tmp_path / "locks"))
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)

    modules, error = done.stdout.splitlines()
    assert modules == "(0, 1)"
    assert "module 0 by pid" in error
