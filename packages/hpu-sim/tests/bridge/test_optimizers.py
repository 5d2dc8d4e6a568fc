"""Fused optimizers. The reference is torch where it implements the same formula, else the paper."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from habana_frameworks.torch.hpex import optimizers

if TYPE_CHECKING:
    from collections.abc import Callable

_STEPS = 4


def _parameters(device: str = "hpu", dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    torch.manual_seed(3)
    shapes = ((4, 3), (3,), (2, 2))
    return [torch.nn.Parameter(torch.randn(shape, dtype=dtype).to(device)) for shape in shapes]


def _train(parameters: list[torch.nn.Parameter], optimizer: Any, steps: int = _STEPS) -> list[torch.Tensor]:
    torch.manual_seed(4)
    for step in range(steps):
        optimizer.zero_grad()
        for index, parameter in enumerate(parameters):
            gradient = torch.randn(parameter.shape, dtype=torch.float32).to(parameter)
            # One parameter takes no part in one of the steps.
            parameter.grad = None if (step, index) == (1, 2) else gradient
        optimizer.step()
    return [parameter.detach().cpu() for parameter in parameters]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "weight_decay": 0.1},
        {"momentum": 0.9, "dampening": 0.3},
        {"momentum": 0.9, "nesterov": True},
    ],
)
def test_sgd_equals_torchs(options: dict[str, Any]) -> None:
    mine, theirs = _parameters(), _parameters("cpu")
    fused, stock = optimizers.FusedSGD(mine, lr=0.1, **options), torch.optim.SGD(theirs, lr=0.1, **options)

    torch.testing.assert_close(_train(mine, fused), _train(theirs, stock))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw_without_epsilon_equals_torchs(decay: float) -> None:
    """The two add epsilon before and after the bias correction."""
    mine, theirs = _parameters(), _parameters("cpu")
    fused = optimizers.FusedAdamW(mine, lr=0.1, eps=0, weight_decay=decay)
    stock = torch.optim.AdamW(theirs, lr=0.1, eps=0, weight_decay=decay)

    torch.testing.assert_close(_train(mine, fused, steps=1), _train(theirs, stock, steps=1))


@pytest.mark.parametrize("bias_correction", [True, False])
def test_adamw_adds_epsilon_to_the_uncorrected_root(bias_correction: bool) -> None:
    weight = torch.nn.Parameter(torch.tensor([2.0], device="hpu"))
    options: dict[str, Any] = {"weight_decay": 0.2, "bias_correction": bias_correction}
    optimizer = optimizers.FusedAdamW([weight], lr=0.1, betas=(0.5, 0.9), eps=0.3, **options)
    expected, mean, square = 2.0, 0.0, 0.0
    for step, gradient in enumerate((1.0, -3.0), start=1):
        mean, square = 0.5 * mean + 0.5 * gradient, 0.9 * square + 0.1 * gradient**2
        size = 0.1 * (math.sqrt(1 - 0.9**step) / (1 - 0.5**step) if bias_correction else 1)
        expected = expected * (1 - 0.1 * 0.2) - size * mean / (math.sqrt(square) + 0.3)
        weight.grad = torch.tensor([gradient], device="hpu")
        optimizer.step()

    assert weight.item() == pytest.approx(expected)


def test_adagrad_equals_torchs() -> None:
    options: dict[str, Any] = {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1, "initial_accumulator_value": 0.2}
    mine, theirs = _parameters(), _parameters("cpu")
    fused, stock = optimizers.FusedAdagrad(mine, **options), torch.optim.Adagrad(theirs, **options)

    torch.testing.assert_close(_train(mine, fused), _train(theirs, stock))


def test_adagrad_keeps_its_learning_rate() -> None:
    """A scheduler changes the groups, and has no effect."""
    mine, theirs = _parameters(), _parameters()
    scheduled, constant = optimizers.FusedAdagrad(mine, lr=0.1), optimizers.FusedAdagrad(theirs, lr=0.1)
    scheduled.param_groups[0]["lr"] = 0.0

    torch.testing.assert_close(_train(mine, scheduled), _train(theirs, constant))


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float32), (torch.bfloat16, torch.float32)])
def test_the_state_of_adamw_is_the_bridges(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    """Each parameter has moments of selectable dtypes, and the group has the step count."""
    parameters = _parameters(dtype=torch.bfloat16)
    optimizer = optimizers.FusedAdamW(parameters, moments_dtype=dtypes[0] if len(set(dtypes)) == 1 else dtypes)
    _train(parameters, optimizer)

    state = optimizer.state_dict()

    assert state["param_groups"][0]["step"] == _STEPS
    assert {name: each.dtype for name, each in state["state"][0].items()} == dict(
        zip(("exp_avg", "exp_avg_sq"), dtypes, strict=True)
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optimizers.FusedAdamW(p, lr=0.1),
        lambda p: optimizers.FusedSGD(p, lr=0.1, momentum=0.9),
        lambda p: optimizers.FusedLamb(p, lr=0.1),
    ],
    ids=["adamw", "sgd", "lamb"],
)
def test_training_continues_from_a_state_dict(make: Callable[[Any], Any]) -> None:
    whole, first = _parameters(), _parameters()
    before = make(first)
    _train(first, before)
    second = copy.deepcopy(first)
    after = make(second)
    after.load_state_dict(before.state_dict())

    full = make(whole)
    _train(whole, full)

    torch.testing.assert_close(_train(second, after), _train(whole, full))


def test_lamb_follows_the_paper() -> None:
    """Gradients are clipped together, and the ratio of norms scales the update."""
    parameters = _parameters()
    before = [parameter.detach().clone() for parameter in parameters]
    gradients = [torch.randn_like(parameter) for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()

    optimizers.FusedLamb(parameters, lr=0.1, eps=1e-6, weight_decay=0.01, max_grad_norm=1.0).step()

    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    for parameter, weight, gradient in zip(parameters, before, gradients, strict=True):
        clipped = gradient / max(float(norm), 1.0)
        update = clipped / (clipped.abs() + 1e-6) + 0.01 * weight
        torch.testing.assert_close(parameter.data, weight - 0.1 * weight.norm() / update.norm() * update)


@pytest.mark.parametrize(
    ("options", "is_equal"),
    [
        ({"max_grad_norm": 0.0}, True),
        ({"max_grad_norm": None}, True),
        ({"max_grad_norm": 0.0, "use_lamb": True}, False),
    ],
)
def test_lamb_without_weight_decay_or_clipping_equals_adam(options: dict[str, Any], is_equal: bool) -> None:
    """With `use_lamb` the ratio scales those updates too."""
    mine, theirs = _parameters(), _parameters("cpu")
    fused = optimizers.FusedLamb(mine, lr=0.1, weight_decay=0.0, eps=1e-6, **options)
    stock = torch.optim.Adam(theirs, lr=0.1, eps=1e-6)

    pairs = zip(_train(mine, fused, steps=1), _train(theirs, stock, steps=1), strict=True)

    assert all(torch.allclose(*pair, atol=1e-5) for pair in pairs) is is_equal


def test_lamb_can_add_the_decay_to_the_gradient() -> None:
    weight = torch.nn.Parameter(torch.tensor([2.0], device="hpu"))
    weight.grad = torch.tensor([1.0], device="hpu")

    optimizers.FusedLamb(
        [weight], lr=0.1, weight_decay=0.5, adam_w_mode=False, max_grad_norm=0, eps=0, bias_correction=False
    ).step()

    # The update is a positive number of whatever size, which the ratio makes as long as the weight.
    assert weight.item() == pytest.approx(2 - 0.1 * 2)


@pytest.mark.parametrize("kept", [True, False])
def test_lamb_clears_gradients_by_its_setting(kept: bool) -> None:
    parameters = _parameters()
    optimizer: Any = optimizers.FusedLamb(parameters, set_grad_none=not kept)
    parameters[0].grad = torch.ones_like(parameters[0])

    optimizer.zero_grad()

    assert (parameters[0].grad is not None) is kept
    with pytest.raises(TypeError):
        optimizer.zero_grad(set_to_none=True)


def test_dtype_of_lamb_is_that_of_the_norm() -> None:
    """Moments have the parameter's. The norm of two times 300 is 424.26, and 424 in bfloat16."""
    parameters = [torch.nn.Parameter(torch.ones(2, device="hpu"))]
    parameters[0].grad = torch.full_like(parameters[0], 300.0)
    optimizer = optimizers.FusedLamb(parameters, weight_decay=0.0, dtype=torch.bfloat16)
    optimizer.step()

    assert {tensor.dtype for tensor in optimizer.state[parameters[0]].values()} == {torch.float32}
    norm = torch.full((2,), 300.0, dtype=torch.bfloat16).norm().float()
    torch.testing.assert_close(optimizer.state[parameters[0]]["exp_avg"].cpu(), 0.1 * torch.full((2,), 300.0) / norm)


def test_a_step_with_a_closure_returns_the_loss() -> None:
    """The closure runs with gradients enabled. Parameters without a gradient stay."""
    parameters = _parameters()

    def closure() -> torch.Tensor:
        loss = parameters[0].sum()
        loss.backward()
        return loss

    for kind in (optimizers.FusedLamb, optimizers.FusedAdamW):
        assert kind(parameters, lr=0.1).step() is None
    assert all(torch.equal(a, b) for a, b in zip(parameters, _parameters(), strict=True))
    assert optimizers.FusedSGD(parameters, lr=0.1).step(closure) is not None
    assert not torch.equal(parameters[0], _parameters()[0])


def test_a_step_is_a_graph_of_its_own(statistics: Callable[[], dict[str, int]]) -> None:
    """In lazy mode a step ends the graph before it and its own."""
    parameters = _parameters()
    parameters[0].grad = torch.ones_like(parameters[0])
    optimizer = optimizers.FusedSGD(parameters, lr=0.1)
    statistics()
    before = statistics()["graphs"]

    optimizer.step()

    assert statistics()["graphs"] == before + 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: optimizers.FusedAdamW(p, lr=-1), "`lr` must be at least 0, got -1"),
        (lambda p: optimizers.FusedAdamW(p, betas=(0.9, 1.0)), r"`betas\[1\]` must be .* less than 1, got 1.0"),
        (lambda p: optimizers.FusedSGD(p, lr=0.1, momentum=-1), "`momentum` must be at least 0, got -1"),
        (lambda p: optimizers.FusedSGD(p, lr=0.1, nesterov=True), "`nesterov` requires momentum and no dampening"),
        (lambda p: optimizers.FusedAdamW(p, eps=-1), "`eps` must be at least 0, got -1"),
        (lambda p: optimizers.FusedLamb(p, lr=-1), "`lr` must be at least 0, got -1"),
    ],
)
def test_hyperparameters_out_of_range_are_named(make: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(_parameters())


def test_what_the_bridge_lacks_is_refused() -> None:
    weight = torch.nn.Parameter(torch.ones(3, 2))
    weight.grad = torch.ones(3, 2).to_sparse()

    with pytest.raises(RuntimeError, match="do not support sparse gradients; use a dense embedding"):
        optimizers.FusedAdamW([weight]).step()
    with pytest.raises(RuntimeError, match="does not support the AMSGrad variant"):
        optimizers.FusedLamb(_parameters(), amsgrad=True)


def test_the_constructor_of_sgd_acquires_a_device(output_on: Callable[..., str]) -> None:
    """The bridge's SGD keeps its learning rate there."""
    program = """
    import torch
    from habana_frameworks.torch.hpex.optimizers import FusedSGD
    before = torch.hpu.is_initialized()
    FusedSGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    print(before, torch.hpu.is_initialized())
    """

    assert output_on(program, HPU_SIM_DEVICES="1") == "False True"
