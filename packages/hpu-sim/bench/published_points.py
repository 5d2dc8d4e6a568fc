"""Compare the planner's time model with published figures of Gaudi cards; print a table.

    python packages/hpu-sim/bench/published_points.py

Nothing is measured here: the measured column is what others published. The efficiencies of the hardware file are
fitted on the points that are marked so. Two depths of each model are planned and extrapolated to its own, because
layers are alike.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from llama import SHAPES, Llama, Shape

import hpu_sim
from hpu_sim import plan
from hpu_sim.plan.execution import record_call
from hpu_sim.plan.session import Options
from hpu_sim.prediction import zero
from hpu_sim.prediction.collectives import collective_seconds
from hpu_sim.prediction.hardware import hardware
from hpu_sim.prediction.recording import Collective, Operation, Recording, StepRecording
from hpu_sim.prediction.time_model import predict

if TYPE_CHECKING:
    from hpu_sim.prediction.hardware import Estimate

_DEPTHS: Final = (2, 4)
_GEMMA: Final = Shape(18, 2048, 8, 1, 16384, 256000)


@dataclass(frozen=True)
class Point:
    """Published figure.

    Attributes:
        name: What was measured.
        source: Who published it.
        measured: Seconds.
        predicted: Fast and slow prediction in seconds.
        is_fitted: Whether efficiencies were fitted on it.
    """

    name: str
    source: str
    measured: float
    predicted: tuple[float, float]
    is_fitted: bool

    @property
    def error(self) -> float:
        """Relative error of the geometric middle of the range."""
        return math.sqrt(self.predicted[0] * self.predicted[1]) / self.measured - 1


@functools.cache
def record(shape: Shape, batch: int, length: int, *, recompute: bool, adapters: bool) -> Recording:
    """Return the recording of a model on one card, without the optimizer, which runs once per many micro-batches."""

    def program() -> None:
        model = Llama(shape, length, recompute=recompute).to(torch.bfloat16).to("hpu")
        for name, parameter in model.named_parameters():
            # Adapters are small: what counts is that the weights have no gradients.
            parameter.requires_grad_(not adapters or "norm" in name)
        for _ in range(2):
            with plan.step():
                model(torch.zeros(batch, length, dtype=torch.int64).to("hpu")).backward()

    return record_call(program, Options())


def seconds(  # noqa: PLR0913 - the published run
    shape: Shape,
    batch: int,
    length: int,
    generation: str,
    *,
    float8: bool = False,
    recompute: bool = False,
    adapters: bool = False,
    partitioned: bool = False,
) -> tuple[float, float]:
    """Return the fast and the slow prediction of a micro-batch.

    Args:
        shape: The model.
        batch: Sequences per card.
        length: Tokens per sequence.
        generation: Generation of the cards.
        float8: Whether the products of weights run in float8.
        recompute: Whether blocks are recomputed in the backward pass.
        adapters: Whether only adapters are trained.
        partitioned: Whether ZeRO-3 divides the parameters among 8 cards.
    """
    found = []
    estimates: tuple[Estimate, Estimate] = ("fast", "slow")
    for estimate in estimates:
        times = []
        for layers in _DEPTHS:
            part = dataclasses.replace(shape, layers=layers)
            recording = record(part, batch, length, recompute=recompute, adapters=adapters)
            if partitioned:
                recording = dataclasses.replace(recording, world_size=8, devices=8)
                recording = zero.apply(recording, "deepspeed_stage_3")
            times.append(predict(recording.steady, generation, 8, estimate=estimate, fuse=True, float8=float8).seconds)
        found.append(times[0] + (shape.layers - _DEPTHS[0]) * (times[1] - times[0]) / (_DEPTHS[1] - _DEPTHS[0]))
    return found[0], found[1]


def product(generation: str, dtype: str, rows: int, columns: int, inner: int) -> tuple[float, float]:
    """Return the fast and the slow prediction of a matrix product."""
    size = 1 if dtype == "float8" else 2
    reads = ((0, rows * inner * size), (1, inner * columns * size))
    operation = Operation(
        "aten.mm", "forward", "", dtype, 2 * rows * columns * inner, (1, rows, columns, inner), reads,
        ((2, rows * columns * 2),), 0,
    )  # fmt: skip
    step = StepRecording([operation])
    fast, slow = hardware(generation, "fast"), hardware(generation, "slow")
    return (
        predict(step, generation, 8, estimate="fast", fuse=True).seconds / fast.step_overhead,
        predict(step, generation, 8, estimate="slow", fuse=True).seconds / slow.step_overhead,
    )


def ratio(shape: Shape, batch: int, length: int) -> tuple[float, float]:
    """Return the time on a Gaudi 3 divided by that on a Gaudi 2, in the fast and in the slow prediction."""
    newer, older = (seconds(shape, batch, length, each) for each in ("GAUDI3", "GAUDI2"))
    return newer[0] / older[0], newer[1] / older[1]


def collective(name: str, size: int, total: int) -> tuple[float, float]:
    """Return the fast and the slow prediction of a collective of 8 Gaudi 3."""
    call = Collective(name, "backward", size, total, tuple(range(8)), is_async=True, after=0)
    return (
        collective_seconds(call, 8, hardware("GAUDI3", "fast")),
        collective_seconds(call, 8, hardware("GAUDI3", "slow")),
    )


def points() -> list[Point]:
    """Return the published figures that the planner can express."""
    seven, seventy = SHAPES["7b"], SHAPES["70b"]
    flops = {
        each: record(dataclasses.replace(seven, layers=each), 1, 2048, recompute=False, adapters=False).steady.flops
        for each in _DEPTHS
    }
    mpt_flops = flops[2] + (seven.layers - 2) * (flops[4] - flops[2]) / 2
    peaks = (
        ("GAUDI2", "bfloat16", (14336, 15360, 2048), 418.7, True),
        ("GAUDI2", "float8", (6144, 11264, 5120), 826.5, False),
        ("GAUDI3", "bfloat16", (16384, 4096, 768), 1243.0, True),
        ("GAUDI3", "float8", (16640, 1536, 3072), 1289.5, False),
    )
    found = [
        Point(
            f"{dtype} product {'x'.join(map(str, shape))}, {generation}",
            "ml-engineering",
            2 * math.prod(shape) / (rate * 1e12),
            product(generation, dtype, *shape),
            fitted,
        )
        for generation, dtype, shape, rate, fitted in peaks
    ]
    mebi = 1 << 20
    found += [
        Point("all_reduce of 256 MB, 8 cards", "Intel's documentation", 0.916e-3,
              collective("allreduce", 256 * mebi, 256 * mebi), is_fitted=True),
        Point("all_gather of 16 MB, 8 cards", "Intel's documentation", 0.23e-3,
              collective("allgather_base", 16 * mebi, 128 * mebi), is_fitted=False),
        Point("Llama 2 7B, float8, sequence 4096, 8 GAUDI2 (V1)", "Intel's performance page", 4096 * 8 / 70523,
              seconds(seven, 1, 4096, "GAUDI2", float8=True), is_fitted=True),
        Point("MPT 7B, bfloat16, at least 260 TFLOP/s, GAUDI2 (V9)", "Databricks", mpt_flops / 260e12,
              seconds(seven, 1, 2048, "GAUDI2"), is_fitted=True),
        Point("Llama 2 70B LoRA, float8, sequence 8192, ZeRO-3, 8 GAUDI2 (V8)", "MLPerf 4.0", 10.22,
              seconds(seventy, 1, 8192, "GAUDI2", float8=True, recompute=True, adapters=True, partitioned=True),
              is_fitted=False),
        Point("Gemma 2B, time on GAUDI3 / GAUDI2 (V18; batch and length assumed)", "optimum-habana", 14.06 / 23.8,
              ratio(_GEMMA, 4, 1024), is_fitted=True),
        Point("Llama 7B LoRA, batch 16, GAUDI2 (V16; length 512 assumed)", "optimum-habana", 16 / 18.4,
              seconds(seven, 16, 512, "GAUDI2", adapters=True), is_fitted=True),
        Point("Llama 7B LoRA, batch 16, GAUDI3 (V16; length 512 assumed)", "optimum-habana", 16 / 29.8,
              seconds(seven, 16, 512, "GAUDI3", adapters=True), is_fitted=False),
        Point("Llama 7B LoRA, batch 2, GAUDI (V16; length 512 assumed)", "optimum-habana", 2 / 2.3,
              seconds(seven, 2, 512, "GAUDI", adapters=True), is_fitted=False),
    ]  # fmt: skip
    return found


def main() -> None:
    """Print the table and the median errors."""
    hpu_sim.activate(devices=8)
    table = points()
    print("| published figure | source | measured (s) | predicted (s), not measured | error of the middle | fitted |")
    print("|---|---|---|---|---|---|")
    for each in table:
        fast, slow = each.predicted
        print(
            f"| {each.name} | {each.source} | {each.measured:.4g} | {fast:.4g} to {slow:.4g} | {each.error:+.0%} | "
            f"{'yes' if each.is_fitted else 'no'} |"
        )
    for fitted in (True, False):
        errors = [abs(each.error) for each in table if each.is_fitted is fitted]
        print(
            f"\n{'fitted' if fitted else 'not fitted'}: median {statistics.median(errors):.0%}, most {max(errors):.0%}"
        )


if __name__ == "__main__":
    main()
