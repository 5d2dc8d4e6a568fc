"""Device locks: one device per process, one process per device."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Final

import pytest

from hpu_sim.device import device_lock

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

_NOT_FOUND: Final = r"^synStatus=8 \[Device not found\] Device acquire failed\.$"
_ALREADY_ACQUIRED: Final = r"^synStatus=20 \[Device already acquired\] Device acquire failed\.$"

# Acquires a device, prints its number, and holds it until stdin is closed.
_HOLDER: Final = """
import os, sys
from hpu_sim.device import device_lock
print(device_lock.acquire(int(sys.argv[1]), os.environ).module_id, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that names a machine whose devices are all free."""
    folder = tmp_path / "cards"
    monkeypatch.setenv("HPU_SIM_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def acquire(machine: Path) -> Iterator[Callable[..., int]]:
    """Return a function that acquires one of two devices and returns its number."""
    locks = []

    def acquire_device(devices: int = 2, **environment: str) -> int:
        lock = device_lock.acquire(devices, environment)
        locks.append(lock)
        return lock.module_id

    yield acquire_device
    for lock in locks:
        lock.release()


@pytest.fixture
def holder(
    machine: Path, start_python: Callable[..., subprocess.Popen[str]]
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts a process that holds a device of the machine."""
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


def test_devices_are_acquired_in_order_unless_named(acquire: Callable[..., int]) -> None:
    assert acquire(HLS_MODULE_ID="1", devices=3) == 1
    assert [acquire(devices=3), acquire(devices=3)] == [0, 2]


def test_a_released_device_is_free(machine: Path) -> None:
    device_lock.acquire(1, {}).release()

    lock = device_lock.acquire(1, {})

    assert lock.module_id == 0
    lock.release()


@pytest.mark.parametrize("named", ["2", "-1", "one", "0.0", "9" * 5000], ids=lambda name: name[:4])
def test_a_missing_module_is_the_bridges_error(named: str, acquire: Callable[..., int]) -> None:
    """Scripts search for the text of synStatus=8."""
    with pytest.raises(RuntimeError, match=_NOT_FOUND):
        acquire(devices=2, HLS_MODULE_ID=named)


def test_another_device_is_acquired_if_there_are_enough_for_all_ranks(acquire: Callable[..., int]) -> None:
    """With as many devices as ranks every rank still gets one."""
    acquire(HLS_MODULE_ID="0")

    assert acquire(HLS_MODULE_ID="0", WORLD_SIZE="2") == 1


@pytest.mark.parametrize(
    ("devices", "more"),
    [
        (1, {}),
        # The free device may be another rank's.
        (2, {"WORLD_SIZE": "3"}),
        (2, {"OMPI_COMM_WORLD_SIZE": "3"}),
        # The job is restricted to given modules.
        (2, {"HABANA_VISIBLE_MODULES": "0"}),
    ],
)
def test_no_device_that_may_be_acquired_is_the_bridges_error(
    devices: int, more: dict[str, str], acquire: Callable[..., int]
) -> None:
    """Scripts search for the text of synStatus=20."""
    acquire(devices, HLS_MODULE_ID="0")

    with pytest.raises(RuntimeError, match=_ALREADY_ACQUIRED):
        acquire(devices, HLS_MODULE_ID="0", **more)


def test_a_killed_process_releases_its_device(
    holder: Callable[..., subprocess.Popen[str]], acquire: Callable[..., int]
) -> None:
    """The kernel releases the lock, and nothing needs cleaning up after SIGKILL."""
    process = holder()
    process.send_signal(signal.SIGKILL)
    process.wait()

    assert acquire(devices=1) == 0


_TWO_THREADS: Final = """
import threading, time
import hpu_sim
hpu_sim.activate(devices=2)
from hpu_sim.device import device_lock, runtime

acquire, acquired = device_lock.acquire, []

def acquire_slowly(*arguments):
    lock = acquire(*arguments)
    acquired.append(lock.module_id)
    time.sleep(0.5)
    return lock

device_lock.acquire = acquire_slowly
threads = [threading.Thread(target=runtime.acquire_device) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(acquired, runtime.has_device())
"""


def test_two_threads_acquire_one_device(output_of: Callable[..., str]) -> None:
    """Threads that use the device for the first time at once share it."""
    assert output_of(_TWO_THREADS) == "[0] True"


_FORK: Final = """
import json, os
import hpu_sim
hpu_sim.activate()
import torch
from hpu_sim.device import device_lock
from hpu_sim.device.runtime import has_device, is_in_bad_fork

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


def test_a_forked_child_has_no_device(output_of: Callable[..., str]) -> None:
    """Its error recommends the spawn method, in torch's words. The parent's device stays locked, and works."""
    error = (
        "Cannot re-initialize HPU in forked subprocess. To use HPU with multiprocessing, "
        "you must use the 'spawn' start method"
    )

    assert json.loads(output_of(_FORK)) == {
        "has_device": False,
        "is_in_bad_fork": True,
        "torch": True,
        "new tensor": error,
        "old tensor": error,
        "still held": device_lock.ALREADY_ACQUIRED,
        "parent": [2.0, 2.0],
    }
