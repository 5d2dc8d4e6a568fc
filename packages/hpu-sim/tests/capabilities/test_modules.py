"""Modules, optimizers and copies of them."""

from __future__ import annotations

import copy
from typing import Any, Final

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

_OPTIMIZERS: Final = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adamax", "NAdam", "RAdam", "Adadelta", "Rprop")


def _steps(name: str, device: str, **options: Any) -> torch.Tensor:
    """Return the weight of a small layer after three steps."""
    torch.manual_seed(0)
    layer = nn.Linear(4, 3)
    x = torch.randn(5, 4)
    layer.to(device)
    momentum = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.01, **momentum, **options)

    # Any, because torch annotates the loss as a float.
    def closure() -> Any:
        optimizer.zero_grad()
        loss = layer(x.to(device)).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    return layer.weight.detach().cpu()


@pytest.mark.parametrize("foreach", [True, False], ids=["foreach", "one by one"])
@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_an_optimizer_computes_as_on_the_cpu(name: str, foreach: bool) -> None:
    assert torch.equal(_steps(name, "hpu", foreach=foreach), _steps(name, "cpu", foreach=foreach))


@pytest.mark.needs_torch("2.9", "hpu among the devices of fused optimizers")
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_a_fused_optimizer_computes_as_on_the_cpu(name: str) -> None:
    assert torch.equal(_steps(name, "hpu", fused=True), _steps(name, "cpu", fused=True))


@pytest.mark.needs_torch("2.6", "hpu among the devices of capturable optimizers")
@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "Adamax", "NAdam", "RAdam", "Adadelta", "Rprop"])
def test_an_optimizer_can_be_capturable(name: str) -> None:
    """Torch supports `capturable` on hpu and not on the CPU, so the reference is the plain optimizer."""
    torch.testing.assert_close(_steps(name, "hpu", capturable=True), _steps(name, "cpu"))


@pytest.mark.needs_torch("2.3", "scaler of gradients for this device")
def test_gradients_can_be_scaled() -> None:
    """torch.amp's GradScaler unscales gradients, and skips a step whose gradients overflow."""
    layer = nn.Linear(2, 1, bias=False).to("hpu")
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("hpu")
    before = layer.weight.detach().clone()
    for value, scale in ((1.0, 65536.0), (float("inf"), 32768.0)):
        optimizer.zero_grad()
        scaler.scale(layer(torch.full((1, 2), value, device="hpu")).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

        assert scaler.get_scale() == scale

    assert torch.equal(layer.weight, before - 1)


def test_gradients_can_be_clipped() -> None:
    parameter = nn.Parameter(torch.zeros(4, device="hpu"))
    parameter.grad = torch.full((4,), 2.0, device="hpu")

    norm = nn.utils.clip_grad_norm_([parameter], 2.0)

    assert norm.item() == 4
    torch.testing.assert_close(parameter.grad.cpu(), torch.ones(4), atol=1e-5, rtol=0)
    nn.utils.clip_grad_value_([parameter], 0.5)
    assert parameter.grad.tolist() == [0.5] * 4


def test_a_module_moves_to_the_device_and_back() -> None:
    module = nn.BatchNorm1d(3)
    module(torch.randn(4, 3)).sum().backward()
    before = {name: value.clone() for name, value in module.state_dict().items()}

    module.to("hpu")

    assert {value.device.type for value in module.state_dict().values()} == {"hpu"}
    assert module.weight.grad is not None
    assert module.weight.grad.device.type == "hpu"
    assert all(torch.equal(value, before[name]) for name, value in module.cpu().state_dict().items())


@pytest.mark.needs_torch("2.1", "storages of this device in Python")
def test_a_deep_copy_keeps_shared_memory_shared() -> None:
    x = torch.zeros(3, device="hpu")

    duplicate, part = copy.deepcopy([x, x[1:]])
    part.fill_(1)

    assert duplicate.tolist() == [0, 1, 1]
    assert x.tolist() == [0, 0, 0]


@pytest.fixture(params=[nn.LSTM, nn.GRU, nn.RNN])
def recurrent(request: pytest.FixtureRequest) -> Any:
    """Return a bidirectional recurrent layer of two levels on the CPU."""
    torch.manual_seed(0)
    return request.param(3, 4, num_layers=2, bidirectional=True, batch_first=True)


def test_a_recurrent_layer_supports_packed_sequences(recurrent: Any) -> None:
    """Their lengths stay on the CPU. Torch adds in another order on accelerators, so results are not bitwise equal."""
    x, lengths = torch.randn(2, 5, 3), torch.tensor([5, 3])
    card = copy.deepcopy(recurrent).to("hpu")
    expected, expected_lengths = rnn.pad_packed_sequence(
        recurrent(rnn.pack_padded_sequence(x, lengths, batch_first=True))[0], batch_first=True
    )

    packed = rnn.pack_padded_sequence(x.to("hpu"), lengths, batch_first=True)
    result, result_lengths = rnn.pad_packed_sequence(card(packed)[0], batch_first=True)
    result.sum().backward()
    expected.sum().backward()

    assert (packed.data.device.type, packed.batch_sizes.device.type) == ("hpu", "cpu")
    assert torch.equal(result_lengths, expected_lengths)
    torch.testing.assert_close(result.cpu(), expected)
    for parameter, reference in zip(card.parameters(), recurrent.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), reference.grad)
