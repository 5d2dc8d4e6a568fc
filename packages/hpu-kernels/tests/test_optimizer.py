"""Steps of the bridge's optimizers on the state of torch's."""

import copy
import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW

from hpu_kernels import HPUKernels, optimizer

Make = Any
KERNEL = HPUKernels(attention=False, norm=False, rotary=False, clip=False)

OPTIMIZERS: dict[str, Any] = {
    "AdamW": functools.partial(AdamW, lr=0.01),
    "AdamW with decay": functools.partial(AdamW, lr=0.01, betas=(0.8, 0.9), eps=1e-10, weight_decay=0.3),
    "Adam": functools.partial(Adam, lr=0.01),
    "SGD": functools.partial(SGD, lr=0.1, weight_decay=0.1),
    "SGD with momentum": functools.partial(SGD, lr=0.1, momentum=0.9, nesterov=True),
    "Adagrad": functools.partial(Adagrad, lr=0.1, initial_accumulator_value=0.1),
}


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to("hpu")


def train(model: nn.Module, stepper: Any, *, fused: bool, seed: int = 0, scheduler: Any = None) -> torch.Tensor:
    """Take three steps, and return the weights."""
    generator = torch.Generator().manual_seed(seed)
    application = KERNEL.apply(model, stepper) if fused else None
    for _ in range(3):
        model(torch.randn(3, 4, generator=generator).to("hpu")).square().sum().backward()
        stepper.step()
        stepper.zero_grad()
        if scheduler is not None:
            scheduler.step()
    if application is not None:
        application.undo()
    return torch.cat([each.detach().flatten() for each in model.parameters()]).cpu()


def run(make: Make, *parts: bool, schedule: bool = False) -> torch.Tensor:
    """Train in parts, each with or without kernels, from the checkpoint of the former; return the weights."""
    model, state, weights = make_model(), None, torch.empty(0)
    for seed, fused in enumerate(parts):
        stepper = make(model.parameters())
        if state is not None:
            stepper.load_state_dict(copy.deepcopy(state))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(stepper, 0.7) if schedule else None
        weights = train(model, stepper, fused=fused, scheduler=scheduler, seed=seed)
        state = stepper.state_dict()
    return weights


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("parts", [(True,), (True, False), (False, True), (True, True)])
def test_steps_are_torchs_also_when_resumed(name: str, parts: tuple[bool, ...]) -> None:
    """AdamW's and Adam's within what the place of eps does: the kernel adds it before the bias correction."""
    expected = run(OPTIMIZERS[name], *(False for _ in parts))

    assert torch.allclose(run(OPTIMIZERS[name], *parts), expected, atol=1e-5)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_schedulers_hold_on(name: str) -> None:
    """FusedAdagrad keeps the learning rate that it is made with."""
    assert torch.allclose(
        run(OPTIMIZERS[name], True, schedule=True), run(OPTIMIZERS[name], False, schedule=True), atol=1e-5
    )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_is_that_of_torch(name: str) -> None:
    states = []
    for fused in (True, False):
        model = make_model()
        stepper = OPTIMIZERS[name](model.parameters())
        train(model, stepper, fused=fused)
        states.append(stepper.state_dict())

    assert states[0]["param_groups"] == states[1]["param_groups"]
    for own, expected in zip(states[0]["state"].values(), states[1]["state"].values(), strict=True):
        assert own.keys() == expected.keys()
        assert all(torch.allclose(own[key].cpu(), expected[key].cpu(), atol=1e-6) for key in own)
    steps = [each["step"] for each in states[0]["state"].values() if "step" in each]
    # torch adds 1 to each, so they must not share memory.
    assert len({each.data_ptr() for each in steps}) == len(steps)


def test_groups_and_parameters_that_begin_later() -> None:
    """Parameters of a group have steps of their own, and a group may be added in a training."""
    results = []
    for fused in (True, False):
        model: Any = make_model()
        stepper = AdamW([{"params": model[0].weight, "lr": 0.1}, {"params": model[2].parameters()}], lr=0.01, eps=1e-12)
        model[2].bias.requires_grad_(False)
        train(model, stepper, fused=fused)
        model[2].bias.requires_grad_()
        stepper.add_param_group({"params": model[0].bias, "weight_decay": 0.5})
        results.append(train(model, stepper, fused=fused, seed=1))

    assert torch.allclose(results[0], results[1], atol=1e-5)


def test_gradients_are_seen_after_the_step_and_closures_run_once() -> None:
    model: Any = make_model()
    stepper = SGD(model.parameters(), lr=0.1)
    calls = []

    def closure() -> torch.Tensor:
        loss: torch.Tensor = model(torch.ones(1, 4, device="hpu")).sum()
        loss.backward()
        calls.append(loss.item())
        return loss

    with KERNEL.apply(model, stepper):
        assert stepper.step(closure).item() == calls[0]

    assert len(calls) == 1
    assert all(each.grad is not None for each in model.parameters())
    assert model(torch.ones(1, 4, device="hpu")).sum().item() != calls[0]


def test_applied_twice_it_steps_once() -> None:
    model = make_model()
    stepper = SGD(model.parameters(), lr=0.1)
    with KERNEL.apply(model, stepper):
        weights = train(model, stepper, fused=True)

    assert torch.allclose(weights, run(functools.partial(SGD, lr=0.1), False), atol=1e-6)


def test_a_gradient_scaler_leaves_the_unscaling_to_torch() -> None:
    """With `fused=True`, torch's step takes the scale from attributes that the scaler sets for it."""
    stepper: Any = AdamW(make_model().parameters(), fused=True)
    assert optimizer.why_left(stepper) is None
    stepper.grad_scale = torch.tensor(2.0)
    assert (optimizer.why_left(stepper) or "").startswith("a gradient scaler")


class _Own(AdamW):
    """Optimizer of a user."""


@pytest.mark.parametrize("make", [_Own, torch.optim.RMSprop])
def test_other_optimizers_stay(make: Make) -> None:
    stepper = make(make_model().parameters())
    with KERNEL.apply(make_model(), stepper):
        assert str(KERNEL).endswith(f"{make.__name__}: left to torch, no optimizer of torch with a fused one")
        assert not stepper._optimizer_step_pre_hooks


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (functools.partial(AdamW, amsgrad=True), "amsgrad"),
        (functools.partial(AdamW, maximize=True), "maximize"),
        (functools.partial(AdamW, capturable=True), "capturable"),
        (functools.partial(AdamW, lr=torch.tensor(0.1)), "the learning rate is a tensor"),
        (functools.partial(Adam, weight_decay=0.1), "weight decay that is added to the gradient"),
        (functools.partial(SGD, lr=0.1, momentum=0.9, dampening=0.1), "dampening"),
        (functools.partial(Adagrad, lr_decay=0.1), "lr_decay"),
    ],
)
def test_step_is_left(make: Make, reason: str) -> None:
    assert optimizer.why_left(make(make_model().parameters())) == reason
