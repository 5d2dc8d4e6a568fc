"""Fifty steps of models of transformers and torch with each kernel, with all and with none."""

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hpu_kernels import HPUKernels
from hpu_testing import Program, machine_env

from .models import CHOICES, MODELS, NONE, make_optimizer

pytestmark = pytest.mark.timeout(600)
STEPS = 50


def train(name: str, switches: dict[str, bool], *, mixed: bool = False, after: Any = None, seed: int = 0) -> Any:
    """Return losses of fifty steps, and the states of model and optimizer; go on after those of another training."""
    torch.manual_seed(seed)
    make, loss_of = MODELS[name]
    model = make().to("hpu")
    optimizer = make_optimizer(model)
    if after is not None:
        model.load_state_dict(after[1])
        optimizer.load_state_dict(copy.deepcopy(after[2]))
    generator, losses = torch.Generator().manual_seed(seed), []
    with HPUKernels(**switches).apply(model, optimizer):
        for _ in range(STEPS):
            with torch.autocast("hpu", dtype=torch.bfloat16, enabled=mixed):
                loss = loss_of(model, generator)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach().float())
    return torch.stack(losses).cpu(), model.state_dict(), optimizer.state_dict()


def distance(first: Any, second: Any) -> float:
    """Return the largest difference of a step's loss."""
    return float((first[0] - second[0]).abs().max())


@pytest.mark.parametrize("name", MODELS)
def test_each_kernel_trains_as_torch(name: str) -> None:
    plain = train(name, NONE)
    distances = {choice: distance(plain, train(name, switches)) for choice, switches in CHOICES.items()}

    assert max(distances.values()) <= 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_bf16_is_as_near_to_float32(name: str) -> None:
    """On average over steps and seeds: which roundings a single training meets is chance."""
    distances = torch.zeros(2)
    for seed in range(4):
        full = train(name, NONE, seed=seed)[0]
        for index, choice in enumerate((NONE, CHOICES["all"])):
            distances[index] += (train(name, choice, mixed=True, seed=seed)[0] - full).abs().mean()

    assert distances[1] <= 1.1 * distances[0]


@pytest.mark.parametrize("name", MODELS)
def test_a_training_goes_on_with_and_without(name: str) -> None:
    plain, fused = train(name, NONE), train(name, CHOICES["all"])
    expected = train(name, NONE, after=plain, seed=1)

    assert distance(expected, train(name, NONE, after=fused, seed=1)) <= 1e-5
    assert distance(expected, train(name, CHOICES["all"], after=plain, seed=1)) <= 1e-5


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "fsdp2"])
@pytest.mark.parametrize("name", MODELS)
def test_each_kernel_trains_as_torch_on_two_cards(name: str, strategy: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "third_party.on_two_cards", name, strategy]
    with Program(command, machine_env(2, tmp_path / "cards"), Path(__file__).parents[1]) as program:
        done = program.wait(500)

    assert done.code == 0, done.output
    [line] = re.findall("^DISTANCES (.*)", done.output, re.MULTILINE)
    distances = json.loads(line)
    assert distances.keys() == CHOICES.keys()
    assert max(distances.values()) <= 1e-5, distances
