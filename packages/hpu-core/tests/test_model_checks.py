"""Tests of the checks for what a card cannot hold, and for callbacks that need whole parameters."""

from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from hpu_core import SingleHPUStrategy, frameworks
from hpu_core._lightning import MisconfigurationException
from hpu_core._model_checks import check_callbacks, check_model

_callbacks = frameworks.current().pytorch("callbacks")


class Rotary(nn.Module):
    """Module with a complex buffer, or with a complex parameter."""

    def __init__(self, *, is_parameter: bool = False) -> None:
        super().__init__()
        value = torch.polar(torch.ones(4), torch.arange(4.0))
        if is_parameter:
            self.freqs_cis = nn.Parameter(value)
        else:
            self.register_buffer("freqs_cis", value, persistent=False)


@pytest.mark.parametrize(("is_parameter", "kind"), [(False, "buffer"), (True, "parameter")])
def test_complex_tensor_is_named(is_parameter: bool, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"^{kind} '1.freqs_cis' must be real.*got torch.complex64: .*view_as_real"):
        check_model(nn.Sequential(nn.Linear(2, 2), Rotary(is_parameter=is_parameter)), trains=False)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_sparse_gradients_are_named(kind: Any) -> None:
    with pytest.raises(ValueError, match=rf"module 'embed' must not have `sparse=True`.*{kind.__name__}"):
        check_model(nn.ModuleDict({"embed": kind(4, 2, sparse=True)}))


def test_sparse_embedding_without_gradients_is_accepted() -> None:
    check_model(nn.Embedding(4, 2, sparse=True), trains=False)
    check_model(nn.Embedding(4, 2, sparse=True).requires_grad_(False))


def test_model_is_checked_when_it_is_set_up() -> None:
    """Before it is moved, as a card refuses the buffer without its name."""
    module = frameworks.current().pytorch().LightningModule()
    module.rotary = Rotary()
    with pytest.raises(ValueError, match=r"'rotary\.freqs_cis'"):
        SingleHPUStrategy().setup(mock.Mock(lightning_module=module, training=True))


class Ours(_callbacks.StochasticWeightAveraging):  # type: ignore[misc, name-defined] # depends on the framework
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
