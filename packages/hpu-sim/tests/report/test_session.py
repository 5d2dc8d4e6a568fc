"""Tests of the recording session."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from hpu_sim.common.encoding import from_dict
from hpu_sim.device import events
from hpu_sim.device.events import Event
from hpu_sim.device.runtime import active_config
from hpu_sim.report.schema import RankRecord
from hpu_sim.report.session import RecordingSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def no_listeners() -> Iterator[None]:
    """End the sessions of a test with it."""
    yield
    events._listeners.clear()
    events._update()


def _listens_to_the_device() -> bool:
    return any("host_sync" in kinds for kinds, _ in events._listeners)


def _step(optimizer: torch.optim.Optimizer) -> None:
    events.emit(Event("optimizer_begin", arguments=(optimizer,)))
    events.emit(Event("optimizer_end", arguments=(optimizer,)))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[RecordingSession]:
    """Return a session before the process acquires a device."""
    session = RecordingSession(tmp_path, active_config())
    yield session
    session.finish()


@pytest.fixture
def read(tmp_path: Path) -> Callable[[], RankRecord]:
    """Return a function that reads the record of this process."""
    path = tmp_path / f"process-{os.getpid()}.json"
    return lambda: from_dict(RankRecord, json.loads(path.read_text(encoding="utf-8")))


def test_acquiring_a_device_writes_a_record(session: RecordingSession, read: Callable[[], RankRecord]) -> None:
    """A process that is killed later is in the report."""
    session.on_device_acquired(1)

    record = read()
    assert (record.state, record.pid, record.module_id) == ("running", os.getpid(), 1)
    assert (record.machine.devices, record.machine.lazy, record.torch) == (2, True, str(torch.__version__))


def test_process_without_a_device_writes_nothing(session: RecordingSession, tmp_path: Path) -> None:
    """Launchers and data loading workers have no device."""
    session.finish()

    assert list(tmp_path.iterdir()) == []


def test_finish_writes_the_final_record(session: RecordingSession, read: Callable[[], RankRecord]) -> None:
    session.on_device_acquired(0)
    events.emit(Event("host_sync", "item"))
    session.finish()

    record = read()
    assert (record.state, [site.op for site in record.sites]) == ("exited", ["item"])
    assert not _listens_to_the_device()


def test_second_finish_does_nothing(session: RecordingSession, read: Callable[[], RankRecord], tmp_path: Path) -> None:
    session.on_device_acquired(0)
    session.finish()
    (tmp_path / f"process-{os.getpid()}.json").unlink()
    session.finish()

    assert list(tmp_path.iterdir()) == []


def test_forked_child_keeps_the_record_of_its_parent(
    session: RecordingSession, read: Callable[[], RankRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child may inherit the exit handlers of its parent."""
    session.on_device_acquired(0)
    monkeypatch.setattr(os, "getpid", lambda: 2)
    session.finish()
    monkeypatch.undo()

    assert read().state == "running"


def test_optimizer_steps_are_counted(session: RecordingSession, read: Callable[[], RankRecord]) -> None:
    session.on_device_acquired(0)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(3, device="hpu"))], lr=0.1)
    for _ in range(3):
        _step(optimizer)
    session.finish()

    assert read().steps == 3


def test_nothing_is_recorded_after_the_end(session: RecordingSession) -> None:
    """Also if the program ends within the step whose time is predicted."""
    session.on_device_acquired(0)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(3, device="hpu"))], lr=0.1)
    for _ in range(2):
        _step(optimizer)
    session.finish()

    assert not events._listeners


def test_steps_without_a_device_do_not_count(session: RecordingSession, read: Callable[[], RankRecord]) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1)
    _step(optimizer)
    session.on_device_acquired(0)

    assert read().steps == 0


def test_record_is_written_periodically_at_steps(
    session: RecordingSession, read: Callable[[], RankRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1)
    session._reset()
    session.on_device_acquired(0)

    _step(optimizer)
    assert read().steps == 0

    now += 10
    _step(optimizer)
    assert (read().state, read().steps) == ("running", 2)


def test_record_is_written_periodically_at_events(
    session: RecordingSession, read: Callable[[], RankRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    session._reset()
    session.on_device_acquired(0)
    now += 10
    for _ in range(7):
        events.emit(Event("host_sync", "item"))

    assert [site.count for site in read().sites] == [1]


def test_failure_to_write_is_a_message_on_stderr(
    session: RecordingSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.rmdir()
    session.on_device_acquired(0)

    assert re.fullmatch(r"hpu-sim: cannot write the record .*/process-\d+\.json: .*\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"RANK": "3"}, (0, 1)),
    ],
    ids=str,
)
def test_rank_is_from_the_launcher_without_a_process_group(
    variables: dict[str, str],
    expected: tuple[int, int],
    session: RecordingSession,
    read: Callable[[], RankRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    session.on_device_acquired(0)

    assert (read().rank, read().world_size) == expected


def test_rank_is_kept_after_the_process_group_is_destroyed(
    session: RecordingSession, read: Callable[[], RankRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    session.on_device_acquired(0)
    with monkeypatch.context() as patch:
        patch.setattr(torch.distributed, "is_initialized", lambda: True)
        patch.setattr(torch.distributed, "get_rank", lambda: 5)
        patch.setattr(torch.distributed, "get_world_size", lambda: 6)
        events.emit(Event("collective", "allreduce", "Float[3]", 12))
    session.finish()

    assert (read().rank, read().world_size) == (5, 6)


def test_a_folder_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="`HPU_SIM_REPORT` must be an existing folder, got '/no/such'"):
        RecordingSession(Path("/no/such"), active_config())


def test_record_counts_what_strict_mode_would_refuse(session: RecordingSession) -> None:
    """Without what did not occur."""
    torch.ones(2, device="hpu").to(torch.complex64)

    counts = session.record("running").leniences
    assert counts["complex results"] > 0
    assert 0 not in counts.values()
