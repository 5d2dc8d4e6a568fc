"""What stands in for Lightning's handling of SIGTERM, on a Trainer of stand-ins."""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from hpu_ddp._lightning import SIGTERMException
from hpu_ddp._sigterm import AgreedEnd


class _Connector:
    """Lightning's, as far as it is stood in for."""

    received_sigterm = False

    def _sigterm_notifier_fn(self, signum: int, frame: Any) -> str:
        return "Lightning's"


class _Loop:
    """Lightning's from 2.5.5 on."""

    def _broadcast_sigterm_tensor(self) -> str:
        return "Lightning's"


@pytest.fixture
def trainer() -> Any:
    """A Trainer that has started two processes."""
    return SimpleNamespace(
        _signal_connector=_Connector(),
        fit_loop=SimpleNamespace(epoch_loop=_Loop()),
        strategy=SimpleNamespace(launcher=mock.Mock()),
    )


@pytest.fixture
def watch() -> Any:
    """A watch of ranks that have not been asked to end."""
    return mock.Mock(stopping=False, pause=mock.Mock(return_value=False))


def test_batches_ask_nobody(trainer: Any, watch: Any) -> None:
    """The loop's own question, a broadcast, is not asked."""
    AgreedEnd(trainer, watch)

    assert trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor() is None


def test_a_signal_asks_all_ranks_to_end(trainer: Any, watch: Any) -> None:
    """And is passed on to the processes that this one has started."""
    AgreedEnd(trainer, watch)
    trainer._signal_connector._sigterm_notifier_fn(15, None)

    watch.stop.assert_called_once_with()
    trainer.strategy.launcher.kill.assert_called_once_with(15)


def test_a_second_signal_is_not_passed_on(trainer: Any, watch: Any) -> None:
    """The processes have the first one, and would pass it back for good."""
    watch.stopping = True
    AgreedEnd(trainer, watch)
    trainer._signal_connector._sigterm_notifier_fn(15, None)

    trainer.strategy.launcher.kill.assert_not_called()


def test_a_batch_begins_where_no_end_is_agreed(trainer: Any, watch: Any) -> None:
    """Nothing is raised."""
    AgreedEnd(trainer, watch).look()

    assert not trainer._signal_connector.received_sigterm


def test_an_agreed_end_is_lightnings_exception(trainer: Any, watch: Any) -> None:
    """And the Trainer knows that it received the signal."""
    watch.pause.return_value = True

    with pytest.raises(SIGTERMException):
        AgreedEnd(trainer, watch).look()
    assert trainer._signal_connector.received_sigterm


def test_the_trainer_is_left_as_it_was(trainer: Any, watch: Any) -> None:
    """Its own methods are back."""
    AgreedEnd(trainer, watch).remove()

    assert trainer._signal_connector._sigterm_notifier_fn(15, None) == "Lightning's"
    assert trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor() == "Lightning's"


def test_older_loops_have_nothing_to_be_spared(trainer: Any, watch: Any) -> None:
    """Before 2.5.5 there is no question to replace."""
    trainer.fit_loop.epoch_loop = SimpleNamespace()
    end = AgreedEnd(trainer, watch)
    end.remove()

    assert not vars(trainer.fit_loop.epoch_loop)
