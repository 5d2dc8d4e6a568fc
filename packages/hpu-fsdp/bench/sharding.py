"""Memory, communication and step time of data parallelism, FSDP and FSDP2 on simulated devices.

    python packages/hpu-fsdp/bench/sharding.py [--ranks 1 2 4] [--json]

Trains eight linear layers of width 512, each wrapped by itself, with AdamW through Fabric. Prints for each strategy, of
rank 0: the device's memory in use after a step (parameters, gradients and optimizer states), the peak, the collectives
of a step, and the median ratio of a step's time to that of torch's FSDP on the CPU over gloo, in the same process. The
memory of states is 16 bytes per parameter, divided by the number of ranks that share them. Run it on an idle machine.
The figures are simulated and do not predict the speed of real cards. The exit code is 1 if memory or collectives differ
from the formula.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LAYERS: Final = 8
WIDTH: Final = 512
BATCH: Final = 64
PARAMETERS: Final = LAYERS * (WIDTH * WIDTH + WIDTH)
STEPS: Final = 20
WARM_UP: Final = 5
TOLERANCE: Final = 0.02
STRATEGIES: Final = ("DDP", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "FSDP2", "FSDP2 resharding")
# All-gathers of a step per wrapped layer, beside one reduction.
GATHERS: Final = {"FULL_SHARD": 2, "SHARD_GRAD_OP": 1, "NO_SHARD": 0, "FSDP2": 1, "FSDP2 resharding": 2}
# Distinguishes the line of rank 0's result from Lightning's output.
RESULT_PREFIX: Final = "measured "


@dataclass(frozen=True)
class Measurement:
    """Result of one strategy on a number of ranks, of rank 0.

    Attributes:
        strategy: One of STRATEGIES.
        ranks: Number of devices.
        state: Bytes in use after a step.
        formula: Bytes of the model state by the formula.
        peak: Peak of the bytes in use.
        collectives: Collectives of a step.
        collective_bytes: Bytes that they transfer, as the simulator counts them.
        host_syncs: Host-device synchronizations of a step.
        step_ms: Median time of a step.
        ratio: Median ratio to a step of torch's FSDP on the CPU.
    """

    strategy: str
    ranks: int
    state: int
    formula: int
    peak: int
    collectives: int
    collective_bytes: int
    host_syncs: int
    step_ms: float
    ratio: float


def make_model() -> Any:
    """Return the model, on the CPU."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def make_fabric(strategy: str, ranks: int) -> Any:
    """Return Fabric with a strategy, launched."""
    import torch
    from lightning.fabric import Fabric
    from torch.distributed.fsdp import fully_shard

    from hpu_fsdp import FabricHPUFSDPStrategy, FabricHPUModelParallelStrategy

    def shard(model: Any, mesh: Any) -> Any:
        for layer in model:
            fully_shard(layer, mesh=mesh["data_parallel"], reshard_after_forward=strategy == "FSDP2 resharding")
        return fully_shard(model, mesh=mesh["data_parallel"], reshard_after_forward=False)

    kind: Any = "hpu_ddp"
    if strategy.startswith("FSDP2"):
        kind = FabricHPUModelParallelStrategy(shard, data_parallel_size=ranks, tensor_parallel_size=1)
    elif strategy != "DDP":
        kind = FabricHPUFSDPStrategy(auto_wrap_policy={torch.nn.Linear}, sharding_strategy=strategy)  # type: ignore[arg-type]
    fabric = Fabric(accelerator="hpu", devices=ranks, strategy=kind)
    fabric.launch()
    return fabric


def make_steps(fabric: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return a step on the device, and one of torch's FSDP on the CPU over gloo."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    def optimizer_of(model: Any) -> Any:
        return torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    model = fabric.setup_module(make_model())
    optimizer = fabric.setup_optimizers(optimizer_of(model))
    batch = torch.ones(BATCH, WIDTH, device="hpu")
    cpu_model = FullyShardedDataParallel(
        make_model(),
        auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}),
        process_group=dist.new_group(backend="gloo"),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    cpu_optimizer = optimizer_of(cpu_model)
    cpu_batch = torch.ones(BATCH, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        fabric.backward(model(batch).pow(2).mean())
        optimizer.step()

    def cpu_step() -> None:
        cpu_optimizer.zero_grad()
        cpu_model(cpu_batch).pow(2).mean().backward()
        cpu_optimizer.step()

    return step, cpu_step


def measure(strategy: str, ranks: int) -> Measurement:
    """Train on this rank and return its measurement."""
    import torch

    import hpu_sim

    step, cpu_step = make_steps(make_fabric(strategy, ranks))
    for _ in range(WARM_UP):
        step()
        cpu_step()
    hpu: Any = vars(torch)["hpu"]
    hpu.reset_peak_memory_stats()
    before = hpu_sim.stats()
    step()
    after = hpu_sim.stats()
    peak = hpu.max_memory_allocated()
    state = hpu.memory_allocated() - BATCH * WIDTH * 4
    times, ratios = [], []
    for _ in range(STEPS):
        started = time.perf_counter()
        step()
        middle = time.perf_counter()
        cpu_step()
        times.append(middle - started)
        ratios.append(times[-1] / (time.perf_counter() - middle))
    shared = 1 if strategy in {"DDP", "NO_SHARD"} else ranks
    return Measurement(
        strategy,
        ranks,
        state,
        16 * PARAMETERS // shared,
        peak,
        after["collectives"] - before["collectives"],
        after["collective_bytes"] - before["collective_bytes"],
        after["host_syncs"] - before["host_syncs"],
        statistics.median(times) * 1000,
        statistics.median(ratios),
    )


def run(strategy: str, ranks: int) -> Measurement:
    """Start the ranks and return rank 0's measurement."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("hpu-sim")), "run", "--quiet", "--devices", str(ranks)]
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
        command += [__file__, "--strategy", strategy, "--ranks", str(ranks)]
        environment = os.environ | {"HPU_SIM_RUNTIME_DIR": folder, "OMP_NUM_THREADS": "1", "PT_HPU_LAZY_MODE": "0"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    lines = [line for line in done.stdout.splitlines() if line.startswith(RESULT_PREFIX)]
    if not lines:
        raise RuntimeError(f"{strategy} on {ranks} ranks failed:\n{done.stdout}{done.stderr}")
    return Measurement(**json.loads(lines[0].removeprefix(RESULT_PREFIX)))


def problems(result: Measurement) -> list[str]:
    """Return what differs from the formula."""
    found = []
    if abs(result.state / result.formula - 1) > TOLERANCE:
        found.append(f"{result.strategy} on {result.ranks}: memory {result.state} B, formula {result.formula} B")
    if result.ranks > 1 and result.strategy in GATHERS:
        gathers = GATHERS[result.strategy]
        # The simulator counts the bytes that a rank sends: a share of the parameters, or all gradients.
        expected = (LAYERS * (gathers + 1), 4 * PARAMETERS * gathers // result.ranks + 4 * PARAMETERS)
        if (result.collectives, result.collective_bytes) != expected:
            found.append(
                f"{result.strategy} on {result.ranks}: {result.collectives} collectives, {result.collective_bytes} B; "
                f"formula {expected[0]}, {expected[1]} B"
            )
    return found


def print_table(results: list[Measurement]) -> None:
    """Print Markdown."""
    print("| strategy | cards | state | formula | peak | collectives | MiB | host syncs | step | to CPU |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for result in results:
        sizes = (f"{size / 2**20:.1f} MiB" for size in (result.state, result.formula, result.peak))
        transferred = result.collective_bytes / 2**20
        print(
            f"| {result.strategy} | {result.ranks} | {' | '.join(sizes)} | {result.collectives} | {transferred:.1f} | "
            f"{result.host_syncs} | {result.step_ms:.1f} ms | {result.ratio:.2f} |"
        )


def main() -> None:
    """Measure, or run as one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--strategy", help="run as a rank with this strategy")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.strategy:
        warnings.simplefilter("ignore")
        result = measure(options.strategy, options.ranks[0])
        if os.environ["RANK"] == "0":
            print(RESULT_PREFIX + json.dumps(asdict(result)), flush=True)
        return
    results = [run(strategy, ranks) for strategy in options.strategies for ranks in options.ranks]
    if options.json:
        print(json.dumps([asdict(result) for result in results]))
    else:
        print_table(results)
    found = [problem for result in results for problem in problems(result)]
    print(*found, sep="\n", file=sys.stderr)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
