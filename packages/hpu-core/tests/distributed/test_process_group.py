"""Arguments of the process group manager, and processes that it waits for."""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch.distributed as dist

from hpu_core import initialize_hccl
from hpu_core._lightning import LightningEnvironment, SIGTERMException, TunerExitException
from hpu_core.distributed import process_group, processes
from hpu_core.distributed.errors import RankFailedError
from hpu_core.distributed.failures import Failure
from hpu_core.distributed.monitor import Monitor
from hpu_core.distributed.process_group import FAILURE_DETECTION, ProcessGroupManager
from hpu_testing import free_port
from hpu_testing.process_groups import leave_process_group

from .jobs import make_job, serve


@pytest.fixture
def on_new_ranks(on_ranks: Callable[..., list[Any]]) -> Iterator[Callable[..., list[Any]]]:
    """Return `on_ranks` for ranks that have no process group, and leave theirs."""
    on_ranks(leave_process_group)
    yield on_ranks
    on_ranks(leave_process_group)


def _initialize_hccl() -> int:
    """Initialize HCCL, and return the rank."""
    rank = int(os.environ["RANK"])
    initialize_hccl(2, rank, rank)
    return rank


def _is_watched(init_method: str | None) -> bool:
    """Return whether a rank whose program creates the process group has a monitor."""
    rank = _initialize_hccl()
    dist.init_process_group("hccl", init_method, rank=rank, world_size=2)
    manager = ProcessGroupManager(None, timedelta(seconds=60))
    cluster = LightningEnvironment()
    cluster.set_world_size(2)
    cluster.set_global_rank(rank)
    manager.rendezvous(cluster)
    return manager.monitor is not None


def test_process_group_of_the_program_is_watched(on_new_ranks: Callable[..., list[Any]]) -> None:
    assert on_new_ranks(_is_watched, None) == [True, True]


def test_process_group_with_another_store_is_not_watched(
    on_new_ranks: Callable[..., list[Any]], tmp_path: Path
) -> None:
    assert on_new_ranks(_is_watched, f"file://{tmp_path}/store") == [False, False]


@pytest.mark.parametrize("name", ["hccl", "cpu:gloo,hpu:hccl", "hpu:hccl"])
def test_the_backend_is_hccl(name: str) -> None:
    """The bridge, which registers it, need not be loaded."""
    assert ProcessGroupManager(name, None).backend == name
    assert ProcessGroupManager(None, None).backend == "hccl"


@pytest.mark.parametrize("name", ["gloo", "nccl", "hcl", "", "cpu:gloo,hpu:gloo"])
def test_other_backends_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"`process_group_backend` must be 'hccl', .* got {name!r}: leave it out"):
        ProcessGroupManager(name, None)


@pytest.mark.parametrize(
    ("timeout", "expected"), [(None, timedelta(minutes=30)), (timedelta(seconds=7), timedelta(seconds=7))]
)
def test_the_timeout_is_torchs_unless_given(timeout: timedelta | None, expected: timedelta) -> None:
    assert ProcessGroupManager(None, timeout).timeout == expected


def test_a_number_is_not_a_timeout() -> None:
    """It could mean seconds or minutes."""
    number: Any = 30
    with pytest.raises(TypeError, match=r"`timeout` must be a datetime.timedelta, got 30"):
        ProcessGroupManager(None, number)


@pytest.mark.parametrize(
    ("argument", "variable", "expected"), [(True, "1", True), (False, "1", False), (True, "0", False)]
)
def test_failure_detection_can_be_switched_off(
    argument: bool, variable: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FAILURE_DETECTION, variable)

    assert ProcessGroupManager(None, None, argument).failure_detection is expected


def test_a_strategy_without_cluster_environment_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no cluster environment: pass it to a Trainer or to Fabric"):
        ProcessGroupManager(None, None).rendezvous(None)


def test_the_error_of_a_launched_function_is_published_before_it_passes_on() -> None:
    manager = ProcessGroupManager(None, None)
    manager.monitor = monitor = mock.create_autospec(Monitor, instance=True)
    error = ValueError("invalid batch")
    with pytest.raises(ValueError, match="invalid batch"):
        manager.run(mock.Mock(side_effect=error))

    monitor.fail.assert_called_once_with(error)


@pytest.mark.parametrize("error", [SIGTERMException, TunerExitException])
def test_an_exit_of_all_ranks_is_no_failure(error: type[BaseException]) -> None:
    manager = ProcessGroupManager(None, None)
    with pytest.raises(error):
        manager.run(mock.Mock(side_effect=error))

    assert manager.error is None


def test_without_failure_detection_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread, no key in a store, and no connection to one."""
    monkeypatch.setattr(process_group, "join", mock.Mock(side_effect=AssertionError))
    manager, cluster = ProcessGroupManager(None, None, failure_detection=False), LightningEnvironment()
    cluster.set_world_size(2)
    manager.rendezvous(cluster)
    with manager.step("backward"), manager.wait("barrier") as nothing:
        assert nothing is None
    manager.end_epoch()

    assert (manager.monitor, manager.control_store, manager.has_rank) == (None, None, True)


def test_a_monitor_that_cannot_start_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A system that allows no further thread still trains."""
    monkeypatch.setattr(process_group, "_job", None)
    monkeypatch.setattr(process_group, "join", lambda job, *_: job)
    monkeypatch.setattr(process_group, "Monitor", mock.Mock(side_effect=RuntimeError("can't start new thread")))
    manager, cluster = ProcessGroupManager(None, None), LightningEnvironment()
    cluster.set_world_size(2)
    manager.rendezvous(cluster)

    assert manager.monitor is None
    message = "failure detection is off on rank 0: RuntimeError: can't start new thread"
    assert [record.message for record in caplog.records] == [message]


def _enter_barrier(is_failed: bool) -> list[str]:
    """Return what a barrier raises on a rank of a Trainer that has failed, or that handles an error and has not."""
    manager = ProcessGroupManager(None, None)
    manager.has_rank = True
    found = []
    try:
        lookup: dict[str, int] = {}
        manager.run(lookup.__getitem__, "loss") if is_failed else lookup["loss"]
    except KeyError:
        try:
            with manager.wait("barrier"):
                pass
        except RuntimeError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize(
    ("is_failed", "found"),
    [(True, ["barrier needs all ranks, and this one has failed before: KeyError: 'loss'"]), (False, [])],
)
def test_a_rank_that_handles_an_error_waits_unless_it_has_failed(is_failed: bool, found: list[str]) -> None:
    """Lightning's hooks save checkpoints after an error, while the other ranks wait in another collective."""
    assert _enter_barrier(is_failed) == found


def _runs() -> list[tuple[float, int]]:
    """Return timeout and number of the trainings of two strategies, one after the other."""
    rank = _initialize_hccl()
    cluster = LightningEnvironment()
    cluster.set_world_size(2)
    cluster.set_global_rank(rank)
    found = []
    for seconds in (60, 90):
        manager = ProcessGroupManager(None, timedelta(seconds=seconds))
        manager.rendezvous(cluster)
        manager.init_process_group(cluster)
        assert manager.monitor is not None
        found.append((manager.monitor.job.timeout.total_seconds(), manager.monitor.job.runs))
        manager.end_epoch()
        dist.barrier()
        manager.close()
    return found


@pytest.fixture
def manager() -> ProcessGroupManager:
    """The manager of a rank without a monitor."""
    return ProcessGroupManager(None, None)


def test_a_step_is_entered_by_its_forward_pass_and_ends_with_its_optimizer_step(manager: ProcessGroupManager) -> None:
    host, places = manager.progress, []
    for scope in ("training step", "backward", "optimizer step"):
        with manager.step(scope):
            places.append((host.scope, *divmod(host.place, 2)))
    places.append((host.scope, *divmod(host.place, 2)))

    assert places == [
        ("training step", 0, 1),
        ("backward", 0, 1),
        ("optimizer step", 0, 1),
        ("", 1, 0),
    ]


def test_an_optimizer_step_that_runs_the_others_is_one_step(manager: ProcessGroupManager) -> None:
    host = manager.progress
    with manager.step("optimizer step"), manager.step("training step"):
        assert host.scope == "training step"

    assert (host.place, host.scope) == (2, "")


@pytest.mark.parametrize("scope", ["setup", "evaluation step", "evaluation forward"])
def test_other_scopes_leave_a_rank_in_its_place(scope: str, manager: ProcessGroupManager) -> None:
    with manager.step(scope):
        assert manager.progress.place == 0


def test_a_step_that_fails_is_not_finished(manager: ProcessGroupManager) -> None:
    with pytest.raises(ValueError, match="invalid"), manager.step("optimizer step"):
        raise ValueError("invalid")

    host = manager.progress
    assert (host.place, host.scope) == (1, "")


def test_a_wait_is_counted_and_has_a_name(manager: ProcessGroupManager) -> None:
    host = manager.progress
    with manager.wait("barrier"):
        assert (host.waits, host.wait) == (1, "barrier")

    assert (host.waits, host.wait) == (1, None)


def test_a_step_and_a_wait_raise_the_failure(manager: ProcessGroupManager) -> None:
    manager.monitor = mock.Mock(failure=Failure("rank 1 exited: killed by signal 9", 1))
    for context in (manager.step("backward"), manager.wait("barrier")):
        with pytest.raises(RankFailedError, match="killed by signal 9"), context:
            pass


def test_each_strategy_of_a_process_has_a_training_of_its_own(on_new_ranks: Callable[..., list[Any]]) -> None:
    assert on_new_ranks(_runs) == [[(60, 1), (90, 2)]] * 2


def test_an_epoch_ends_when_all_ranks_have_ended_it(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    server = serve(port)
    job = make_job(port=port, root=server)
    monkeypatch.setattr(process_group, "_job", job)
    manager = ProcessGroupManager(None, None)
    manager.monitor = mock.create_autospec(Monitor, instance=True, is_off=False)
    monkeypatch.setattr(manager, "check", lambda: job.store(1).add("epochs", 1))
    manager.end_epoch()

    # Once by the other rank, at the start of the wait.
    assert job.store(1).add("epochs", 0) == 2


@pytest.mark.parametrize(("launcher", "expected"), [(None, 20), (1, 300)])
def test_ranks_of_a_busy_machine_may_take_minutes_to_join(
    launcher: int | None, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two busy cores took more than 30 s, and the launcher sees an exit."""
    monkeypatch.setattr(processes, "launcher_pid", lambda: launcher)
    manager, cluster = ProcessGroupManager(None, timedelta(seconds=20)), LightningEnvironment()
    cluster.set_world_size(2)
    monkeypatch.setattr(process_group, "join", mock.Mock(side_effect=RuntimeError("stop")))
    with pytest.raises(RuntimeError, match="stop"):
        manager.rendezvous(cluster)

    assert process_group.join.call_args.args[1].total_seconds() == expected  # type: ignore[attr-defined] # A mock.


def test_the_end_of_rank_0_during_the_rendezvous_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    manager, cluster = ProcessGroupManager(None, None), LightningEnvironment()
    cluster.set_world_size(2)
    cluster.set_global_rank(1)
    monkeypatch.setattr(process_group, "join", mock.Mock(side_effect=RuntimeError("Connection reset by peer")))
    with pytest.raises(RankFailedError, match="rank 0 exited during rendezvous at "):
        manager.rendezvous(cluster)


@pytest.mark.skipif(not hasattr(dist.Backend, "backend_capability"), reason="Requires: torch 2.1")
def test_a_group_that_was_made_without_a_backend_has_that_of_hpu(monkeypatch: pytest.MonkeyPatch) -> None:
    group = mock.create_autospec(dist.ProcessGroup, instance=True)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_backend", lambda: "undefined")
    monkeypatch.setattr(dist, "get_backend_config", lambda: "hpu:hccl")
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_group", lambda: group)

    ProcessGroupManager(None, None).init_process_group(mock.Mock())

    group._set_default_backend.assert_called_once_with(dist.ProcessGroup.BackendType.CUSTOM)
