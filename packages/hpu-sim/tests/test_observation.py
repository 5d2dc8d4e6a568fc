"""What observes a program changes nothing of it: a report, a profile, the asynchronous and the strict device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.needs_torch("2.7", "name for hpu activity")

# Trains models, one of them compiled as well, and prints all that an observation might change.
_PROGRAM: Final = """
import contextlib, hashlib, sys, warnings
import torch
import habana_frameworks.torch
from torch._dynamo.utils import counters
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.split, self.join = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)

    def forward(self, tokens):
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.split(tokens).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return functional.dropout(self.join(mixed.transpose(1, 2).flatten(2)), 0.1)

class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))

    def forward(self, values):
        mask = values > 0.5
        if mask.all():
            values = values + 1
        for layer in self.layers:
            values = values.masked_fill(mask, 0.0) + layer(values).relu()
        return values + torch.randn_like(values)

def train(model, call, optimizer):
    for length in (4, 4, 6):
        loss = call(torch.rand(2, length, 8).to("hpu")).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if length == 6:
            warnings.warn("another length")
        yield loss.item().hex()

torch.set_num_threads(1)
activities = [ProfilerActivity.CPU, ProfilerActivity.HPU]
adamw, adagrad = torch.optim.AdamW, torch.optim.Adagrad
for kind, optimizer, compiles in ((Attention, adamw, False), (Masked, adagrad, False), (Masked, adagrad, True)):
    torch.manual_seed(3)
    counters.clear()
    model = kind().to("hpu")
    call = torch.compile(model, backend="hpu_backend") if compiles else model
    observation = profile(activities=activities) if sys.argv[1] == "profile" else contextlib.nullcontext()
    with warnings.catch_warnings(record=True) as given, observation:
        warnings.simplefilter("always")
        losses = list(train(model, call, optimizer(model.parameters())))
    weights = b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())
    print(kind.__name__, "compiled" if compiles else "eager")
    print(" losses", losses, "weights", hashlib.sha256(weights).hexdigest())
    print(" random numbers", torch.rand(2).tolist(), torch.rand(2, device="hpu").tolist())
    print(" warnings", [(warning.category.__name__, str(warning.message)) for warning in given])
    print(" graphs", counters["stats"]["unique_graphs"], "breaks", counters["graph_break"].total())
"""


@pytest.fixture(scope="module")
def unobserved(output_of: Callable[..., str]) -> str:
    """Return what the program prints by itself."""
    output = output_of(_PROGRAM, "", HPU_SIM_DEVICES="1", PT_HPU_LAZY_MODE="0")
    assert output.count("another length") == output.count(" graphs") == 3
    return output


@pytest.mark.parametrize("observation", ["profile", "HPU_SIM_REPORT", "HPU_SIM_ASYNC", "HPU_SIM_STRICT"])
def test_what_observes_a_program_changes_nothing(
    observation: str, unobserved: str, output_of: Callable[..., str], tmp_path: Path
) -> None:
    """Losses, weights, random numbers, warnings and compiled graphs are the same to the bit."""
    variables = {"HPU_SIM_DEVICES": "1", "PT_HPU_LAZY_MODE": "0"}
    if observation.startswith("HPU_SIM_"):
        variables[observation] = str(tmp_path) if observation == "HPU_SIM_REPORT" else "1"

    expected, observed = unobserved.splitlines(), output_of(_PROGRAM, observation, **variables).splitlines()

    if observation == "HPU_SIM_STRICT":
        # Strict mode computes attention by a card's path, which rounds otherwise.
        for index in [index for index, text in enumerate(expected) if text.startswith("Attention")]:
            expected[index + 1] = observed[index + 1] = ""
    assert observed == expected
