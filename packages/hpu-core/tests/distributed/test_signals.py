"""Replacement of a real Trainer's signal handling."""

import math
import signal
from typing import Any
from unittest import mock

import pytest

from hpu_core import frameworks
from hpu_core._lightning import SIGTERMException
from hpu_core.distributed.launcher import HPUSubprocessScriptLauncher
from hpu_core.distributed.signals import NOTIFIER, REQUEUER, SYNCHRONIZER, SignalCoordinator
from hpu_core.distributed.watchdog import Watchdog

_pytorch = frameworks.current().pytorch()


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A Trainer on the CPU whose launcher records the signals that it sends."""
    trainer = _pytorch.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, barebones=True)
    launcher = mock.create_autospec(HPUSubprocessScriptLauncher, instance=True)
    monkeypatch.setattr(trainer.strategy, "_launcher", launcher)
    return trainer


@pytest.fixture
def watchdog() -> Any:
    """A watchdog whose ranks do not stop."""
    watchdog = mock.create_autospec(Watchdog, instance=True)
    watchdog.signals_before_batch.return_value = ()
    return watchdog


def test_batches_synchronize_nothing(trainer: Any, watchdog: Any) -> None:
    SignalCoordinator(trainer, watchdog)
    loop = trainer.fit_loop.epoch_loop

    with mock.patch("torch.distributed.broadcast") as broadcast:
        getattr(loop, SYNCHRONIZER, lambda: None)()
    broadcast.assert_not_called()


def test_lightnings_signal_handler_asks_all_ranks_to_stop(trainer: Any, watchdog: Any) -> None:
    SignalCoordinator(trainer, watchdog)
    previous = signal.getsignal(signal.SIGTERM)
    trainer._signal_connector.register_signal_handlers()
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        trainer._signal_connector.teardown()
        signal.signal(signal.SIGTERM, previous)

    watchdog.notify_signal.assert_called_once_with(signal.SIGTERM)
    trainer.strategy.launcher.kill.assert_called_once_with(signal.SIGTERM)


def test_a_second_signal_is_not_passed_on(trainer: Any, watchdog: Any) -> None:
    """The launched ranks receive the first one, and would pass it back forever."""
    SignalCoordinator(trainer, watchdog)
    for _ in range(2):
        getattr(trainer._signal_connector, NOTIFIER)(signal.SIGTERM, None)

    trainer.strategy.launcher.kill.assert_called_once_with(signal.SIGTERM)


def test_a_batch_starts_where_no_stop_is_agreed(trainer: Any, watchdog: Any) -> None:
    with mock.patch.object(type(trainer.fit_loop.epoch_loop), "advance") as advance:
        SignalCoordinator(trainer, watchdog)
        trainer.fit_loop.epoch_loop.advance("fetcher")

    advance.assert_called_once_with("fetcher")
    assert not trainer.received_sigterm


@pytest.mark.parametrize(("limit", "ends"), [(4, [4]), (5, [])], ids=["last batch", "not the last"])
def test_the_ranks_end_an_epoch_together(limit: int, ends: list[int], trainer: Any, watchdog: Any) -> None:
    loop = trainer.fit_loop.epoch_loop
    trainer.strategy.connect(_pytorch.LightningModule())
    trainer.fit_loop.max_batches = limit
    with mock.patch.object(type(loop), "advance"):
        SignalCoordinator(trainer, watchdog)
        loop.batch_progress.current.ready = 4
        loop.advance("fetcher")

    assert watchdog.end_epoch.mock_calls == [*map(mock.call, ends)]


def test_the_ranks_end_an_epoch_that_is_cut_short_together(trainer: Any, watchdog: Any) -> None:
    loop = trainer.fit_loop.epoch_loop
    with mock.patch.object(type(loop), "advance", side_effect=StopIteration):
        SignalCoordinator(trainer, watchdog)
        with pytest.raises(StopIteration):
            loop.advance("fetcher")

    watchdog.end_epoch.assert_called_once_with(0)


def test_an_agreed_stop_is_lightnings_exception(trainer: Any, watchdog: Any) -> None:
    watchdog.signals_before_batch.return_value = (signal.SIGTERM,)

    with mock.patch.object(type(trainer.fit_loop.epoch_loop), "advance") as advance:
        SignalCoordinator(trainer, watchdog)
        with pytest.raises(SIGTERMException):
            trainer.fit_loop.epoch_loop.advance("fetcher")

    # Nothing is fetched: a stateful loader would count the batch as delivered.
    advance.assert_not_called()
    assert trainer.received_sigterm


@pytest.mark.parametrize(("may_differ", "expected"), [(False, 5), (True, math.inf)])
def test_an_agreed_stop_ends_an_evaluation(may_differ: bool, expected: float, trainer: Any, watchdog: Any) -> None:
    """Where some ranks may have no batch at all, the ranks do not wait for each other."""
    module = _pytorch.LightningModule()
    module.allow_zero_length_dataloader_with_multiple_devices = may_differ
    trainer.strategy.connect(module)
    watchdog.signals_before_batch.return_value = (signal.SIGTERM,)

    with pytest.raises(SIGTERMException):
        SignalCoordinator(trainer, watchdog).before_evaluation_batch([2, 3])

    watchdog.signals_before_batch.assert_called_once_with(expected)


def test_a_requeue_waits_for_an_agreed_batch(trainer: Any, watchdog: Any) -> None:
    with mock.patch.object(trainer._signal_connector, REQUEUER) as requeue:
        SignalCoordinator(trainer, watchdog)
        getattr(trainer._signal_connector, REQUEUER)(signal.SIGUSR1, None)

    watchdog.notify_signal.assert_called_once_with(signal.SIGUSR1)
    requeue.assert_not_called()


def test_an_agreed_requeue_precedes_the_batch_that_is_trained_next(trainer: Any, watchdog: Any) -> None:
    watchdog.signals_before_batch.return_value = (signal.SIGUSR1,)
    calls = mock.Mock()

    with (
        mock.patch.object(trainer._signal_connector, REQUEUER, calls.requeue),
        mock.patch.object(type(trainer.fit_loop.epoch_loop), "advance", calls.advance),
    ):
        SignalCoordinator(trainer, watchdog)
        trainer.fit_loop.epoch_loop.advance("fetcher")

    assert calls.mock_calls == [mock.call.requeue(signal.SIGUSR1, None), mock.call.advance("fetcher")]


def test_the_trainer_is_restored(trainer: Any, watchdog: Any) -> None:
    SignalCoordinator(trainer, watchdog).remove()

    assert not {NOTIFIER, REQUEUER} & vars(trainer._signal_connector).keys()
    assert not {SYNCHRONIZER, "advance"} & vars(trainer.fit_loop.epoch_loop).keys()
