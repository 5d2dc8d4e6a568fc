"""One card per process, one process per card."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Final

import pytest

from hpu_sim import device_lock

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

_NOT_FOUND: Final = r"^synStatus=8 \[Device not found\] Device acquire failed\.$"
_ALREADY_ACQUIRED: Final = r"^synStatus=20 \[Device already acquired\] Device acquire failed\.$"

# Takes a card, says which, and holds it until its standard input ends.
_HOLDER: Final = """
import os, sys
from hpu_sim import device_lock
print(device_lock.acquire(int(sys.argv[1]), os.environ).module_id, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the lock files of a machine whose cards are all free."""
    folder = tmp_path / "cards"
    monkeypatch.setenv("HPU_SIM_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def take(machine: Path) -> Iterator[Callable[..., int]]:
    """Takes a card of two and returns its number; the test's end gives it back."""
    taken = []

    def acquire(devices: int = 2, **environment: str) -> int:
        lock = device_lock.acquire(devices, environment)
        taken.append(lock)
        return lock.module_id

    yield acquire
    for lock in taken:
        lock.release()


@pytest.fixture
def holder(
    machine: Path, start_python: Callable[..., subprocess.Popen[str]]
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a process that holds a card of the machine; the test's end ends it."""
    processes = []

    def start(devices: int = 1) -> subprocess.Popen[str]:
        process = start_python("-c", _HOLDER, str(devices), HPU_SIM_RUNTIME_DIR=str(machine))
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_cards_are_taken_in_order(take: Callable[..., int]) -> None:
    """Without a name the first free card is taken."""
    assert [take(), take()] == [0, 1]


def test_a_named_module_is_taken(take: Callable[..., int]) -> None:
    """HLS_MODULE_ID goes before the order."""
    assert take(HLS_MODULE_ID="1") == 1


def test_a_card_given_back_is_free(machine: Path) -> None:
    """The same card can be taken again."""
    device_lock.acquire(1, {}).release()

    lock = device_lock.acquire(1, {})

    assert lock.module_id == 0
    lock.release()


def test_no_free_card_is_the_bridges_error(take: Callable[..., int]) -> None:
    """Scripts search for the words of synStatus 20."""
    take(devices=1)

    with pytest.raises(RuntimeError, match=_ALREADY_ACQUIRED):
        take(devices=1)


@pytest.mark.parametrize("named", ["2", "-1", "one", "0.0"])
def test_a_module_that_is_not_there_is_the_bridges_error(named: str, take: Callable[..., int]) -> None:
    """Scripts search for the words of synStatus 8."""
    with pytest.raises(RuntimeError, match=_NOT_FOUND):
        take(devices=2, HLS_MODULE_ID=named)


def test_a_taken_module_is_replaced_where_there_are_cards_for_all_ranks(take: Callable[..., int]) -> None:
    """With as many cards as ranks each of them finds one."""
    take(HLS_MODULE_ID="0")

    assert take(HLS_MODULE_ID="0", WORLD_SIZE="2") == 1


@pytest.mark.parametrize("variable", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_a_taken_module_is_not_replaced_where_ranks_outnumber_cards(variable: str, take: Callable[..., int]) -> None:
    """Another rank may be waiting for the free card."""
    take(HLS_MODULE_ID="0")

    with pytest.raises(RuntimeError, match=_ALREADY_ACQUIRED):
        take(HLS_MODULE_ID="0", **{variable: "3"})


def test_a_taken_module_is_not_replaced_where_modules_were_chosen(take: Callable[..., int]) -> None:
    """HABANA_VISIBLE_MODULES says which cards the job may use."""
    take(HLS_MODULE_ID="0")

    with pytest.raises(RuntimeError, match=_ALREADY_ACQUIRED):
        take(HLS_MODULE_ID="0", HABANA_VISIBLE_MODULES="0")


def test_a_card_of_another_process_is_refused(
    holder: Callable[..., subprocess.Popen[str]], take: Callable[..., int]
) -> None:
    """Locks hold between processes."""
    holder()

    with pytest.raises(RuntimeError, match=_ALREADY_ACQUIRED):
        take(devices=1)


def test_the_next_card_is_taken_beside_another_process(
    holder: Callable[..., subprocess.Popen[str]], take: Callable[..., int]
) -> None:
    """The order goes on after what others have."""
    holder(devices=2)

    assert take(devices=2) == 1


def test_a_killed_process_loses_its_card(
    holder: Callable[..., subprocess.Popen[str]], take: Callable[..., int]
) -> None:
    """SIGKILL leaves no time to clean up, and nothing needs cleaning."""
    process = holder()
    process.send_signal(signal.SIGKILL)
    process.wait()

    assert take(devices=1) == 0


def test_the_folder_of_the_machine_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without HPU_SIM_RUNTIME_DIR users do not meet each other's lock files."""
    monkeypatch.delenv("HPU_SIM_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    assert device_lock.runtime_folder() == tmp_path / f"hpu-sim-{os.getuid()}"


_FORK: Final = """
import json, os
import hpu_sim
hpu_sim.activate()
import torch
from hpu_sim import device_lock
from hpu_sim.runtime import has_device, is_in_bad_fork

x = torch.ones(2, device="hpu")
reader, writer = os.pipe()
child = os.fork()
if not child:
    report = {"has_device": has_device(), "is_in_bad_fork": is_in_bad_fork(), "torch": torch.hpu._is_in_bad_fork()}
    try:
        torch.ones(2, device="hpu")
    except RuntimeError as error:
        report["new tensor"] = str(error)
    try:
        x + 1
    except RuntimeError as error:
        report["old tensor"] = str(error)
    os.write(writer, json.dumps(report).encode())
    os._exit(0)
os.waitpid(child, 0)
report = json.loads(os.read(reader, 4096))
try:
    device_lock.acquire(1, {})
except RuntimeError as error:
    report["still held"] = str(error)
report["parent"] = (x + 1).tolist()
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def fork(output_of: Callable[..., str]) -> dict[str, object]:
    """What a process that holds a card and the child that it forks see."""
    return dict(json.loads(output_of(_FORK)))


def test_a_forked_child_has_no_card(fork: dict[str, object]) -> None:
    """It knows so, too."""
    assert (fork["has_device"], fork["is_in_bad_fork"], fork["torch"]) == (False, True, True)


@pytest.mark.parametrize("tensor", ["new tensor", "old tensor"])
def test_a_forked_child_is_told_to_spawn(tensor: str, fork: dict[str, object]) -> None:
    """Using the device after a fork is an error that says what to do, in torch's words."""
    assert fork[tensor] == (
        "Cannot re-initialize HPU in forked subprocess. To use HPU with multiprocessing, "
        "you must use the 'spawn' start method"
    )


def test_a_forked_child_does_not_give_away_the_card(fork: dict[str, object]) -> None:
    """When the child has ended the parent's card is taken still, and works."""
    assert fork["still held"] == device_lock.ALREADY_ACQUIRED
    assert fork["parent"] == [2.0, 2.0]


def test_a_child_forked_before_takes_a_card_of_its_own(output_of: Callable[..., str]) -> None:
    """A fork is harmless while the parent has none."""
    program = """
    import os
    import hpu_sim
    hpu_sim.activate()
    import torch
    child = os.fork()
    if not child:
        os._exit(int(torch.ones(3, device="hpu").sum().item()))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """

    assert output_of(program) == "3"
