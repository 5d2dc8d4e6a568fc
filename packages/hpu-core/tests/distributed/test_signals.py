"""Replacement of a real Trainer's signal handling."""

import signal
from typing import Any
from unittest import mock

import pytest

from hpu_core import frameworks
from hpu_core._lightning import SIGTERMException
from hpu_core.distributed.process_group import ProcessGroupManager
from hpu_core.distributed.rendezvous import TCPStore
from hpu_core.distributed.signals import NOTIFIER, REQUEUER, SYNCHRONIZER, SharedSignals, SignalCoordinator
from hpu_testing import free_port

from .jobs import serve

_pytorch = frameworks.current().pytorch()


@pytest.fixture
def trainer() -> Any:
    """A Trainer on the CPU."""
    return _pytorch.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, barebones=True)


@pytest.fixture
def groups() -> Any:
    """Process groups whose ranks cannot ask each other, so that a rank handles its own signals."""
    return mock.create_autospec(ProcessGroupManager, instance=True, control_store=None)


@pytest.fixture
def agreements() -> Any:
    """The agreements of two ranks."""
    port = free_port()
    server = serve(port)
    stores = [TCPStore("127.0.0.1", port, 1, is_master=False, wait_for_workers=False) for _ in "01"]
    groups = [mock.MagicMock(control_store=store) for store in stores]
    yield [SharedSignals(each) for each in groups]
    del server


def _stops(agreements: Any, batches: int = 4000) -> list[dict[int, set[int]]]:
    """Return the signals of each rank by the batch before which it handles them; rank 1 is ahead by some batches."""
    found: list[dict[int, set[int]]] = [{}, {}]
    for batch in range(batches):
        for rank in (1, 0):
            if signals := agreements[rank].before_batch():
                found[rank][batch] = signals
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_all_ranks_handle_a_signal_before_the_same_batch(rank: int, agreements: Any) -> None:
    _stops(agreements, 7)
    agreements[rank].received.add(signal.SIGTERM)
    first, second = _stops(agreements)

    assert first == second
    assert [*first.values()] == [{signal.SIGTERM}]


def test_a_signal_to_all_ranks_is_handled_once(agreements: Any) -> None:
    _stops(agreements, 7)
    for agreement in agreements:
        agreement.received.add(signal.SIGUSR1)
    first, second = _stops(agreements)

    assert first == second
    assert [*first.values()] == [{signal.SIGUSR1}]


def test_a_rank_that_is_ahead_stops_where_the_others_do(agreements: Any) -> None:
    """Its host has gone on while the other one received the signal."""
    agreements[1].before_batch()
    for _ in range(50):
        agreements[1].before_batch()
    agreements[0].received.add(signal.SIGTERM)
    stops = [next(index for index in range(5000) if each.before_batch()) for each in agreements]

    assert stops[0] == stops[1] + 51


def test_ranks_ask_about_once_a_second(agreements: Any) -> None:
    clock = mock.patch("time.monotonic", side_effect=(0.001 * count for count in range(1_000_000)))
    with clock, mock.patch.object(agreements[0], "_answer", wraps=agreements[0]._answer) as answer:
        _stops(agreements, 3000)

    assert 1 < answer.call_count < 100


def test_a_store_that_fails_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    store = mock.Mock(**dict.fromkeys(["add.side_effect", "compare_set.side_effect"], RuntimeError("broken pipe")))
    agreement = SharedSignals(mock.MagicMock(control_store=store))
    for _ in range(3):
        agreement.received.add(signal.SIGTERM)
        agreement.before_batch()

    assert len(caplog.records) == 1


def test_batches_synchronize_nothing(trainer: Any, groups: Any) -> None:
    SignalCoordinator(trainer, groups)
    loop = trainer.fit_loop.epoch_loop

    with mock.patch("torch.distributed.broadcast") as broadcast:
        getattr(loop, SYNCHRONIZER, lambda: None)()
    broadcast.assert_not_called()


def test_lightnings_signal_handler_asks_all_ranks_to_stop(trainer: Any, groups: Any) -> None:
    coordinator = SignalCoordinator(trainer, groups)
    previous = signal.getsignal(signal.SIGTERM)
    trainer._signal_connector.register_signal_handlers()
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        trainer._signal_connector.teardown()
        signal.signal(signal.SIGTERM, previous)

    assert coordinator._shared.received == {signal.SIGTERM}


@pytest.mark.parametrize(("limit", "ends"), [(4, 1), (5, 0)], ids=["last batch", "not the last"])
def test_the_ranks_end_an_epoch_together(limit: int, ends: int, trainer: Any, groups: Any) -> None:
    loop = trainer.fit_loop.epoch_loop
    trainer.strategy.connect(_pytorch.LightningModule())
    trainer.fit_loop.max_batches = limit
    with mock.patch.object(type(loop), "advance"):
        SignalCoordinator(trainer, groups)
        loop.batch_progress.current.ready = 4
        loop.advance("fetcher")

    assert groups.end_epoch.call_count == ends


def test_the_ranks_end_an_epoch_that_is_cut_short_together(trainer: Any, groups: Any) -> None:
    loop = trainer.fit_loop.epoch_loop
    with mock.patch.object(type(loop), "advance", side_effect=StopIteration):
        SignalCoordinator(trainer, groups)
        with pytest.raises(StopIteration):
            loop.advance("fetcher")

    groups.end_epoch.assert_called_once_with()


def test_an_agreed_stop_is_lightnings_exception(trainer: Any, groups: Any) -> None:
    with mock.patch.object(type(trainer.fit_loop.epoch_loop), "advance") as advance:
        SignalCoordinator(trainer, groups)._shared.received.add(signal.SIGTERM)
        with pytest.raises(SIGTERMException):
            trainer.fit_loop.epoch_loop.advance("fetcher")

    # Nothing is fetched: a stateful loader would count the batch as delivered.
    advance.assert_not_called()
    assert trainer.received_sigterm


def test_a_requeue_precedes_the_batch_that_is_trained_next(trainer: Any, groups: Any) -> None:
    calls = mock.Mock()
    with (
        mock.patch.object(trainer._signal_connector, REQUEUER, calls.requeue),
        mock.patch.object(type(trainer.fit_loop.epoch_loop), "advance", calls.advance),
    ):
        SignalCoordinator(trainer, groups)
        getattr(trainer._signal_connector, REQUEUER)(signal.SIGUSR1, None)
        calls.requeue.assert_not_called()
        trainer.fit_loop.epoch_loop.advance("fetcher")

    assert calls.mock_calls == [mock.call.requeue(signal.SIGUSR1, None), mock.call.advance("fetcher")]


def test_the_trainer_is_restored(trainer: Any, groups: Any) -> None:
    SignalCoordinator(trainer, groups).remove()

    assert not {NOTIFIER, REQUEUER} & vars(trainer._signal_connector).keys()
    assert not {SYNCHRONIZER, "advance"} & vars(trainer.fit_loop.epoch_loop).keys()
