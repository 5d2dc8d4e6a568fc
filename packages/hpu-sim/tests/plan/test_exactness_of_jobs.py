"""Plans of four models under four strategies agree with runs on 1, 2 and 4 simulated cards.

Each test prints a row; docs/records/planner.md sums them up: `pytest -m slow -s packages/hpu-sim/tests/plan`.
"""

from __future__ import annotations

import functools
import gc
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch

import hpu_sim
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.memory import memory_plan
from hpu_sim.plan.options import Options
from hpu_testing import SharedRankPool

from .programs import BATCH, GPT2, LENGTH, LENGTH_OF_GPT2, MODELS, gpt2, train

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.needs_torch("2.8", "interfaces for the planner"),
    pytest.mark.slow,
    pytest.mark.usefixtures("eager"),
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:FSDP is switching to use `NO_SHARD`"),
]

STRATEGIES: Final = ("ddp", "fsdp", "fsdp2", "tp")
ALL_MODELS: Final = {**MODELS, "gpt2": gpt2}
# Time that a call may take on a busy machine, in seconds.
_CALL_TIMEOUT: Final = 600.0
# Memory of the host that a rank of GPT-2 takes. The kernel ends ranks without a word where it is short.
_GPT2_GIB: Final = 3.3


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedRankPool]:
    with SharedRankPool(lambda: tmp_path_factory.mktemp("ranks")) as pool:
        yield pool


def train_rank(model: str, strategy: str) -> tuple[int, list[dict[str, int]]]:
    """Train on a rank, and return the memory that was allocated before and the counters after each step."""
    torch.set_num_threads(1)
    gc.collect()
    hpu_sim.reset_stats()
    before = hpu_sim.stats()["allocated_bytes"]
    return before, train(ALL_MODELS[model], wrap=strategy, name=model)


def _linear(rows: int, inputs: int, outputs: int) -> int:
    """Return the floating-point operations of a linear layer: its product and both gradients."""
    return 3 * 2 * rows * inputs * outputs


def _attention(batch: int, heads: int, length: int, size: int) -> int:
    """Return those of attention as separate operators: two products, and four in the backward pass."""
    return (2 + 4) * 2 * batch * heads * length * length * size


def closed_formula(model: str, shards: int) -> int:
    """Return the floating-point operations of a step on a rank, by hand.

    Args:
        model: Name of the model.
        shards: Ranks among which tensor parallelism divides layers; 1 for all other strategies.
    """
    if model == "mlp":
        # The first layer has no gradient of its input.
        return (_linear(BATCH, 64, 128) * 2 // 3 + _linear(BATCH, 128, 10)) // shards
    if model == "cnn":
        convolution = 2 * 2 * BATCH * 16 * 16 * 8 * 3 * 3 * 3
        # The first rank has the largest share of 10 classes.
        return convolution + _linear(BATCH, 8 * 64, -(-10 // shards))
    if model == "transformer":
        rows = BATCH * LENGTH
        divided = (_linear(rows, 32, 64) + _linear(rows, 64, 32)) // shards
        others = _linear(rows, 32, 96) + _linear(rows, 32, 32) + _linear(rows, 32, 100)
        return divided + others + _attention(BATCH, 4, LENGTH, 8)
    layers, width, heads, vocabulary, _ = GPT2
    layer = _linear(LENGTH_OF_GPT2, width, 12 * width) + _attention(1, heads, LENGTH_OF_GPT2, width // heads)
    return layers * layer // shards + _linear(LENGTH_OF_GPT2, width, vocabulary)


def _available_gib() -> float:
    """Return the memory of the host that programs can take, in GiB."""
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    (kibibytes,) = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return kibibytes / (1 << 20)


def _per_step(counters: list[dict[str, int]]) -> list[tuple[int, int]]:
    """Return calls and bytes of collectives in each step after the first."""
    return [
        (after["collectives"] - before["collectives"], after["collective_bytes"] - before["collective_bytes"])
        for before, after in itertools.pairwise(counters)
    ]


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("model", ALL_MODELS)
def test_a_plan_is_that_of_a_run(
    model: str, strategy: str, count: int, ranks: SharedRankPool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Calls, bytes, peak memory and floating-point operations are those of the run and of the formula."""
    if model == "gpt2" and _available_gib() < count * _GPT2_GIB:
        pytest.skip(f"{count} ranks of GPT-2 need {count * _GPT2_GIB:.1f} GiB of memory that other programs leave free")
    recording = record_call(
        functools.partial(train, ALL_MODELS[model], wrap=strategy, name=model), Options(devices=count), ()
    )
    results: list[Any] = ranks.call(train_rank, model, strategy, count=count, seconds=_CALL_TIMEOUT)
    before, measured = results[0]

    peak, planned_peak = measured[-1]["peak_bytes"] - before, memory_plan(recording).peak_bytes
    planned = [(len(step.collectives), sum(each.bytes for each in step.collectives)) for step in recording.steps]
    run = _per_step(measured)
    calls, size = planned[-1]
    with capfd.disabled():
        print(  # noqa: T201 - the table is the product
            f"\n| {model} | {strategy} | {count} | {calls} / {run[-1][0]} | {size} / {run[-1][1]} | "
            f"{planned_peak} / {peak} ({planned_peak / peak - 1:+.2%}) | {recording.steady.flops} |"
        )
    assert planned[1:] == run[: len(planned) - 1]
    assert planned_peak == pytest.approx(peak, rel=0.01)
    assert recording.steady.flops == closed_formula(model, count if strategy == "tp" else 1)
