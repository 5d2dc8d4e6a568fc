"""Recording in one process."""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from hpu_sim.report import session as module
from hpu_sim.report.schema import RankRecord, from_dict
from hpu_sim.report.session import RecordingSession
from hpu_sim.runtime import active_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class _Device:
    """A device that only its listener hears."""

    listener: Any = None

    def set_listener(self, listener: Any) -> None:
        self.listener = listener


@pytest.fixture
def device() -> _Device:
    """A device that tells nothing by itself."""
    return _Device()


@pytest.fixture
def session(device: _Device, tmp_path: Path) -> RecordingSession:
    """A recording of lines, whose process has no card yet."""
    return RecordingSession(tmp_path, "lines", active_config(), device)  # type: ignore[arg-type] # as much as it needs


@pytest.fixture
def read(tmp_path: Path) -> Callable[[], RankRecord]:
    """Reads the record that this process has left."""
    path = tmp_path / f"process-{os.getpid()}.json"
    return lambda: from_dict(RankRecord, json.loads(path.read_text(encoding="utf-8")))


def test_a_process_leaves_a_record_as_soon_as_it_takes_a_card(
    session: RecordingSession, read: Callable[[], RankRecord]
) -> None:
    """Killed later, it will be missed."""
    session.on_device_acquired(1)

    record = read()
    assert (record.state, record.pid, record.module_id, record.uncaught_error) == ("running", os.getpid(), 1, None)
    assert (record.machine.devices, record.machine.lazy, record.machine.torch) == (2, True, str(torch.__version__))


def test_a_process_without_a_card_leaves_nothing(session: RecordingSession, tmp_path: Path) -> None:
    """As a launcher, or a worker that loads data."""
    session.finish()

    assert list(tmp_path.iterdir()) == []


def test_the_last_record_says_so(session: RecordingSession, device: _Device, read: Callable[[], RankRecord]) -> None:
    """And the device is no longer listened to."""
    session.on_device_acquired(0)
    device.listener("host_sync", "item", "", 0)
    session.finish()

    record = read()
    assert (record.state, [site.op for site in record.sites]) == ("exited", ["item"])
    assert device.listener is None


def test_it_ends_once(session: RecordingSession, read: Callable[[], RankRecord], tmp_path: Path) -> None:
    """Whoever asks for it again."""
    session.on_device_acquired(0)
    session.finish()
    (tmp_path / f"process-{os.getpid()}.json").unlink()
    session.finish()

    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_leaves_its_parents_record_alone(
    session: RecordingSession, read: Callable[[], RankRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the parent promised to do at its end the child does, too, if it ends like one."""
    session.on_device_acquired(0)
    monkeypatch.setattr(os, "getpid", lambda: 2)
    session.finish()
    monkeypatch.undo()

    assert read().state == "running"


def test_counting_needs_no_listener(device: _Device, tmp_path: Path) -> None:
    """It costs nothing while the program runs."""
    RecordingSession(tmp_path, "counts", active_config(), device)  # type: ignore[arg-type] # as above

    assert device.listener is None


@pytest.mark.parametrize("detail", ["counts", "lines"])
def test_optimizer_steps_are_counted(
    detail: Any, device: _Device, tmp_path: Path, read: Callable[[], RankRecord]
) -> None:
    """Also where only totals are kept."""
    session = RecordingSession(tmp_path, detail, active_config(), device)  # type: ignore[arg-type] # as above
    session.on_device_acquired(0)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(3, device="hpu"))], lr=0.1)
    for _ in range(3):
        session._on_optimizer_step(optimizer, (), {})
    session.finish()

    assert (read().detail, read().steps.finished) == (detail, 3)


def test_steps_without_a_card_do_not_count(session: RecordingSession, read: Callable[[], RankRecord]) -> None:
    """A program may train something on the host first."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1)
    session._on_optimizer_step(optimizer, (), {})
    session.on_device_acquired(0)

    assert read().steps.finished == 0


def test_a_long_run_writes_what_it_knows_now_and_then(
    session: RecordingSession, device: _Device, read: Callable[[], RankRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a step, when it is time."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1)
    session._reset()
    session.on_device_acquired(0)

    session._on_optimizer_step(optimizer, (), {})
    assert read().steps.finished == 0

    now += 10
    session._on_optimizer_step(optimizer, (), {})
    assert (read().state, read().steps.finished) == ("running", 2)


def test_a_run_without_steps_does_so_too(
    session: RecordingSession, device: _Device, read: Callable[[], RankRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a number of events."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(module, "_EVENTS_PER_CHECK", 4)
    session._reset()
    session.on_device_acquired(0)
    now += 10
    for _ in range(7):
        device.listener("host_sync", "item", "", 0)

    assert [site.count for site in read().sites] == [4]


def test_a_full_disk_is_a_line_on_stderr(
    session: RecordingSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no trouble of the program."""
    tmp_path.rmdir()
    session.on_device_acquired(0)

    assert re.fullmatch(r"hpu-sim: the record .*/process-\d+\.json cannot be written \(.*\)\n", capsys.readouterr().err)


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
def test_a_launcher_gives_the_rank(
    variables: dict[str, str],
    expected: tuple[int, int],
    session: RecordingSession,
    read: Callable[[], RankRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where there is no process group."""
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    session.on_device_acquired(0)

    assert (read().rank, read().world_size) == expected


def test_a_process_group_that_is_gone_has_given_the_rank(
    session: RecordingSession, device: _Device, read: Callable[[], RankRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs destroy it before they end."""
    session.on_device_acquired(0)
    with monkeypatch.context() as patch:
        patch.setattr(torch.distributed, "is_initialized", lambda: True)
        patch.setattr(torch.distributed, "get_rank", lambda: 5)
        patch.setattr(torch.distributed, "get_world_size", lambda: 6)
        device.listener("collective", "allreduce", "Float[3]", 12)
    session.finish()

    assert (read().rank, read().world_size) == (5, 6)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"HPU_SIM_REPORT": "/no/such"}, "`HPU_SIM_REPORT` must name a folder that exists, got '/no/such'"),
        (
            {"HPU_SIM_REPORT": "/", "HPU_SIM_REPORT_DETAIL": "all"},
            "`HPU_SIM_REPORT_DETAIL` must be 'counts' or 'lines', got 'all'",
        ),
    ],
    ids=["folder", "detail"],
)
def test_variables_that_cannot_be_are_refused(variables: dict[str, str], words: str, device: _Device) -> None:
    """When the simulator starts."""
    with pytest.raises(ValueError, match=re.escape(words)):
        RecordingSession.from_environment(variables, active_config(), device)  # type: ignore[arg-type] # as above


@pytest.mark.parametrize(("detail", "listens"), [("", True), ("lines", True), ("counts", False)])
def test_variables_choose_what_is_recorded(detail: str, listens: bool, device: _Device, tmp_path: Path) -> None:
    """Lines, unless told otherwise."""
    variables = {"HPU_SIM_REPORT": str(tmp_path), "HPU_SIM_REPORT_DETAIL": detail}
    RecordingSession.from_environment(variables, active_config(), device)  # type: ignore[arg-type] # as above

    assert (device.listener is not None) is listens
