"""Arguments of the process group manager, and processes that it waits for."""

import functools
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch.distributed as dist

from hpu_core import initialize_hccl
from hpu_core._lightning import LightningEnvironment, SIGTERMException, TunerExitException
from hpu_core.distributed import process_group
from hpu_core.distributed.errors import RankFailedError
from hpu_core.distributed.failure_detection import Heartbeat
from hpu_core.distributed.launcher import LaunchedRanks
from hpu_core.distributed.process_group import FAILURE_DETECTION, ProcessGroupManager, _make_check
from hpu_core.distributed.rendezvous import RendezvousResult
from hpu_core.distributed.store import RendezvousConfig
from hpu_core.distributed.watchdog import Watchdog
from hpu_core.launcher_env import LAUNCHER_PID
from hpu_testing.process_groups import leave_process_group

from .jobs import launched_process

if TYPE_CHECKING:
    from torch._C._distributed_c10d import HashStore
else:
    from torch.distributed import HashStore


def _initialize_hccl() -> int:
    """Initialize HCCL in a process without a process group, and return the rank."""
    leave_process_group()
    rank = int(os.environ["RANK"])
    initialize_hccl(2, rank, rank)
    return rank


def _is_watched(init_method: str | None) -> bool:
    """Return whether a rank whose program creates the process group has a watchdog."""
    rank = _initialize_hccl()
    dist.init_process_group("hccl", init_method, rank=rank, world_size=2)
    manager = ProcessGroupManager(None, timedelta(seconds=60))
    cluster = LightningEnvironment()
    cluster.set_world_size(2)
    cluster.set_global_rank(rank)
    manager.rendezvous(cluster)
    is_watched = manager.watchdog is not None
    # The ranks leave together: rank 0 keeps the store.
    dist.barrier()
    manager.close()
    leave_process_group()
    return is_watched


def test_process_group_of_the_program_is_watched(on_ranks: Callable[..., list[Any]]) -> None:
    assert on_ranks(_is_watched, None) == [True, True]


def test_process_group_with_another_store_is_not_watched(on_ranks: Callable[..., list[Any]], tmp_path: Path) -> None:
    assert on_ranks(_is_watched, f"file://{tmp_path}/store") == [False, False]


@pytest.mark.parametrize("name", [None, "hccl"])
def test_the_backend_is_hccl(name: str | None) -> None:
    """The bridge, which registers it, need not be loaded."""
    assert ProcessGroupManager(name, None).backend == "hccl"


@pytest.mark.parametrize("name", ["gloo", "nccl", "hcl", "", "cpu:gloo,hpu:gloo"])
def test_other_backends_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"`process_group_backend` must be 'hccl' .* got {name!r}: leave it out"):
        ProcessGroupManager(name, None)


def test_a_backend_registered_for_hpu_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist.Backend, "OWN", "own", raising=False)
    # torch 2.0 has no such table.
    if hasattr(dist.Backend, "backend_capability"):
        monkeypatch.setitem(dist.Backend.backend_capability, "own", ["hpu"])

    assert ProcessGroupManager("own", None).backend == "own"


@pytest.mark.parametrize(
    ("timeout", "expected"), [(None, timedelta(minutes=30)), (timedelta(seconds=7), timedelta(seconds=7))]
)
def test_the_timeout_is_torchs_unless_given(timeout: timedelta | None, expected: timedelta) -> None:
    assert ProcessGroupManager(None, timeout).timeout == expected


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_timeout_must_be_positive(seconds: int) -> None:
    with pytest.raises(ValueError, match=f"`timeout` must be more than 0 seconds, got {seconds} s"):
        ProcessGroupManager(None, timedelta(seconds=seconds))


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


def test_a_rank_that_failed_enters_no_collective() -> None:
    """Lightning's hooks save checkpoints after an error, while the other ranks wait in another collective."""
    manager = ProcessGroupManager(None, None)
    with pytest.raises(KeyError):
        manager.run({}.__getitem__, "loss")

    with pytest.raises(RuntimeError, match=r"all-gather needs all ranks, and this one has failed before: KeyError"):
        manager.wait("all-gather")


@pytest.mark.parametrize(("is_common", "error"), [(True, None), (False, "ValueError: invalid batch")])
def test_a_rank_that_handles_an_error_is_alone_unless_all_ranks_agree(is_common: bool, error: str | None) -> None:
    manager = ProcessGroupManager(None, None)
    manager.watchdog = watchdog = mock.create_autospec(Watchdog, instance=True)
    watchdog.confirm.return_value = is_common
    try:
        raise ValueError("invalid batch")  # noqa: TRY301 - handled as a program does.
    except ValueError:
        assert manager.leave_if_failed("barrier") is not is_common

    assert manager.error == error


@pytest.mark.parametrize("error", [SIGTERMException, StopIteration])
def test_an_exception_that_is_no_error_is_not_agreed_on(error: type[BaseException]) -> None:
    manager = ProcessGroupManager(None, None)
    manager.watchdog = watchdog = mock.create_autospec(Watchdog, instance=True)
    try:
        raise error  # noqa: TRY301 - handled as a program does.
    except error:
        assert not manager.leave_if_failed("barrier")

    watchdog.confirm.assert_not_called()


def test_without_a_watchdog_a_rank_prints_its_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RendezvousConfig("127.0.0.1", 1, 1, 2, timedelta(1))
    monkeypatch.setattr(process_group, "_job", mock.Mock(config=config))
    with pytest.raises(KeyError):
        ProcessGroupManager(None, None, failure_detection=False).run({}.__getitem__, "loss")

    assert capsys.readouterr().err == "[rank 1] failed: KeyError: 'loss'\n"


def test_the_error_of_a_launched_function_is_published_before_it_passes_on() -> None:
    manager = ProcessGroupManager(None, None)
    manager.watchdog = watchdog = mock.create_autospec(Watchdog, instance=True)
    error = ValueError("invalid batch")
    with pytest.raises(ValueError, match="invalid batch"):
        manager.run(mock.Mock(side_effect=error))

    watchdog.report_failure.assert_called_once_with(error)


@pytest.mark.parametrize("error", [SIGTERMException, TunerExitException])
def test_an_exit_of_all_ranks_is_no_failure(error: type[BaseException]) -> None:
    manager = ProcessGroupManager(None, None)
    with pytest.raises(error):
        manager.run(mock.Mock(side_effect=error))

    assert manager.error is None


@pytest.mark.parametrize("backend", ["cpu:gloo,hpu:hccl", "hpu:hccl"])
def test_a_pair_of_backends_is_taken(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist.Backend, "HCCL", "hccl", raising=False)
    # torch 2.0 has no such table.
    if hasattr(dist.Backend, "backend_capability"):
        monkeypatch.setitem(dist.Backend.backend_capability, "hccl", ["hpu"])

    assert ProcessGroupManager(backend, None).backend == backend


def test_without_a_watchdog_nothing_is_counted() -> None:
    manager = ProcessGroupManager(None, None)
    with manager.step("backward"), manager.wait("barrier") as nothing:
        assert nothing is None


def test_strategies_of_a_process_know_the_same_launched_ranks() -> None:
    """Defect A6: the second Trainer of a script starts none, and learns the exit codes of the first one's."""
    assert ProcessGroupManager(None, None).launched is ProcessGroupManager(None, None).launched


def _timeouts() -> list[float]:
    """Return the timeouts by which the watchdogs of two strategies go, one after the other."""
    rank = _initialize_hccl()
    cluster = LightningEnvironment()
    cluster.set_world_size(2)
    cluster.set_global_rank(rank)
    found = []
    for seconds in (60, 90):
        manager = ProcessGroupManager(None, timedelta(seconds=seconds))
        manager.rendezvous(cluster)
        manager.init_process_group(cluster)
        assert manager.watchdog is not None
        found.append(manager.watchdog.job.config.timeout.total_seconds())
        dist.barrier()
        manager.close()
    dist.destroy_process_group()
    return found


def test_each_strategy_has_its_own_timeout(on_ranks: Callable[..., list[Any]]) -> None:
    """Defect A7: the process group outlives the first one."""
    assert on_ranks(_timeouts) == [[60, 90], [60, 90]]


@pytest.mark.parametrize(("attempt", "run"), [(1, 2), (2, 1)])
def test_another_watchdog_goes_on_counting_trainings(attempt: int, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, the guard of the last one may not have published its training; another store counts anew."""
    store = HashStore()
    for number in (1, 2):
        store.set(f"hpu_core/{number}/heartbeat/0", Heartbeat().to_json())
        store.set(f"hpu_core/{number}/heartbeat/1", Heartbeat().to_json())
    config = RendezvousConfig("127.0.0.1", 1, 0, 2, timedelta(seconds=2))
    monkeypatch.setattr(process_group, "_watchdog", None)
    monkeypatch.setattr(process_group, "Watchdog", functools.partial(Watchdog, guard=lambda *_, **__: 0))
    for number, detects in ((1, False), (attempt, True)):
        job: Any = RendezvousResult(config, store, number, {})  # type: ignore[arg-type] # A store without a server.
        watchdog = process_group._find_watchdog(job, LaunchedRanks(), detects=detects)
        watchdog.open()
        found = watchdog.clock.from_rank.read().run
        watchdog._is_off = True
        watchdog.close()

    watchdog.shutdown()
    assert found == run


@pytest.mark.parametrize(
    ("launcher", "launched", "expected"), [(None, False, 20), ("1", False, 300), (None, True, 300)]
)
def test_ranks_of_a_busy_machine_may_take_minutes_to_join(
    launcher: str | None, launched: bool, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect A11: two busy cores took more than 30 s, and the launcher sees an exit."""
    monkeypatch.delenv(LAUNCHER_PID, raising=False)
    if launcher:
        monkeypatch.setenv(LAUNCHER_PID, launcher)
    monkeypatch.setattr(process_group, "_job", None)
    manager, cluster = ProcessGroupManager(None, timedelta(seconds=20)), LightningEnvironment()
    manager.launched = LaunchedRanks({1: launched_process()} if launched else {})
    cluster.set_world_size(2)
    with (
        mock.patch.object(process_group, "open_store", side_effect=RuntimeError("stop")) as opened,
        pytest.raises(RuntimeError, match="stop"),
    ):
        manager.rendezvous(cluster)

    assert opened.call_args.args[0].timeout.total_seconds() == expected


@pytest.mark.parametrize("error", [RuntimeError("cannot open the store"), RankFailedError("found no rank 0")])
def test_the_launched_ranks_of_a_rank_without_a_store_are_killed(error: RuntimeError) -> None:
    """They would wait for the same store until their own timeout."""
    manager, cluster, process = ProcessGroupManager(None, None), LightningEnvironment(), launched_process()
    cluster.set_world_size(2)
    manager.launched = LaunchedRanks({1: process})
    with (
        mock.patch.object(process_group, "open_store", side_effect=error),
        pytest.raises(type(error), match=str(error)),
    ):
        manager.rendezvous(cluster)

    process.kill.assert_called_once_with()


def test_a_launched_rank_that_exited_ends_the_wait() -> None:
    with pytest.raises(RankFailedError, match=r"rank 3 exited before it joined: exit code 1\. See its own error"):
        _make_check(LaunchedRanks({3: launched_process(1)}))()


def test_a_launcher_that_exited_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAUNCHER_PID, str(os.getppid()))
    check = _make_check(LaunchedRanks())
    check()

    assert LAUNCHER_PID not in os.environ
    with (
        mock.patch("os.getppid", return_value=os.getppid() + 1),
        pytest.raises(RankFailedError, match=r"launched this rank, exited"),
    ):
        check()


@pytest.mark.skipif(not hasattr(dist, "get_backend_config"), reason="Requires: torch 2.1, with several backends")
def test_a_group_that_was_made_without_a_backend_has_that_of_hpu(monkeypatch: pytest.MonkeyPatch) -> None:
    group = mock.create_autospec(dist.ProcessGroup, instance=True)
    monkeypatch.setitem(dist.Backend.backend_capability, "hccl", ["hpu"])
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_backend", lambda: "undefined")
    monkeypatch.setattr(dist, "get_backend_config", lambda: "hpu:hccl")
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_group", lambda: group)

    ProcessGroupManager(None, None).init_process_group(mock.Mock())

    group._set_default_backend.assert_called_once_with(dist.ProcessGroup.BackendType.CUSTOM)
