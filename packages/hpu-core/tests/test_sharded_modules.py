"""Tests of the check for callbacks that need whole parameters."""

from unittest import mock

import pytest

from hpu_core import SingleHPUStrategy, frameworks
from hpu_core._lightning import MisconfigurationException
from hpu_core.sharded_modules import check_callbacks

_callbacks = frameworks.current().pytorch("callbacks")


class Ours(_callbacks.StochasticWeightAveraging):  # type: ignore[misc, name-defined] # The base is that of `lightning` or `pytorch_lightning`, known when it runs.
    """Subclass of a user."""


def test_callback_with_whole_parameters_is_named() -> None:
    with pytest.raises(MisconfigurationException, match=r"^Ours needs whole parameters.*`strategy='hpu_ddp'`"):
        check_callbacks([_callbacks.Timer(), Ours(swa_lrs=0.1)])


class _Sharding(SingleHPUStrategy):
    """Strategy that shards parameters."""

    shards_parameters = True


@pytest.mark.parametrize(("ranks", "is_error"), [(1, False), (2, True)])
def test_callbacks_are_checked_where_cards_share_parameters(ranks: int, is_error: bool) -> None:
    module = frameworks.current().pytorch().LightningModule()
    trainer = mock.Mock(lightning_module=module, callbacks=[Ours(swa_lrs=0.1)], world_size=ranks)
    # Without an accelerator, Lightning's set-up ends with an AssertionError.
    with pytest.raises(MisconfigurationException if is_error else AssertionError):
        _Sharding().setup(trainer)
