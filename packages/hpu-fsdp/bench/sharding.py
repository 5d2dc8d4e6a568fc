"""Memory, communication and step time of data parallelism, FSDP and FSDP2 on simulated devices.

    python packages/hpu-fsdp/bench/sharding.py [--ranks 1 2 4] [--strategies FULL_SHARD] [--json]

Trains eight linear layers of width 512, each wrapped by itself, with AdamW through Fabric. Prints for each strategy, of
rank 0: the device's memory in use after a step (parameters, gradients and optimizer states), the peak, the collectives
of a step, and the median time of a step. The memory of states is 16 bytes per parameter, divided by the number of ranks
that share them.

Each rank alternates between this step and one of Lightning's FSDP on the CPU over gloo, in one process with one thread,
so other load affects both. Lightning's has the same sharding strategy, or FULL_SHARD where it has none. The result is
the median ratio of consecutive steps. FULL_SHARD and SHARD_GRAD_OP have a limit, and are launched again until the ratio
is known well enough to judge.

Run it on an idle machine. The figures are simulated and do not predict the speed of real cards. The exit code is 1 if
memory or collectives differ from the formula, or a limit is missed or cannot be judged.
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
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import gates

if TYPE_CHECKING:
    from collections.abc import Callable

LAYERS: Final = 8
WIDTH: Final = 512
BATCH: Final = 64
PARAMETERS: Final = LAYERS * (WIDTH * WIDTH + WIDTH)
STEPS: Final = 100
WARM_UP: Final = 10
TOLERANCE: Final = 0.02
LIMIT: Final = 1.10
LIMITED: Final = ("FULL_SHARD", "SHARD_GRAD_OP")
MAX_LAUNCHES: Final = 4
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
        ratios: Ratios of each step's time to that of the step of Lightning's FSDP on the CPU that follows it.
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
    ratios: list[float]


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


def make_cpu_fabric(strategy: str, ranks: int) -> Any:
    """Return Fabric with Lightning's FSDP on CPU tensors over gloo, which Lightning refuses by name, launched."""
    import torch
    import torch.distributed as dist
    from lightning.fabric import Fabric
    from lightning.fabric.strategies.fsdp import FSDPStrategy
    from torch.distributed import fsdp

    class CPUFullyShardedDataParallel(fsdp.FullyShardedDataParallel):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # Without it, torch takes the accelerator of the process.
            super().__init__(*args, **{**kwargs, "device_id": torch.device("cpu")})

    class CPUStrategy(FSDPStrategy):
        def setup_module(self, module: Any) -> Any:
            with mock.patch.object(fsdp, "FullyShardedDataParallel", CPUFullyShardedDataParallel):
                return super().setup_module(module)

    sharding: Any = strategy if strategy in GATHERS and not strategy.startswith("FSDP2") else "FULL_SHARD"
    kind = CPUStrategy(
        auto_wrap_policy={torch.nn.Linear},
        process_group=dist.new_group(backend="gloo"),
        process_group_backend="gloo",
        sharding_strategy=sharding,
    )
    fabric = Fabric(accelerator="cpu", devices=ranks, strategy=kind)
    fabric.launch()
    return fabric


def make_step(fabric: Any) -> Callable[[], None]:
    """Return a training step with Fabric."""
    import torch

    model = fabric.setup_module(make_model())
    optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False))
    batch = torch.ones(BATCH, WIDTH, device=fabric.device)

    def step() -> None:
        optimizer.zero_grad()
        fabric.backward(model(batch).pow(2).mean())
        optimizer.step()

    return step


def measure(strategy: str, ranks: int) -> Measurement:
    """Train on this rank and return its measurement."""
    import torch

    import hpu_sim

    # Before the first backward pass, because autograd's device thread keeps the number of threads at its start.
    torch.set_num_threads(1)
    step = make_step(make_fabric(strategy, ranks))
    cpu_step = make_step(make_cpu_fabric(strategy, ranks))
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
    for _ in range(STEPS // ranks):
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
        ratios,
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
            f"{result.host_syncs} | {result.step_ms:.1f} ms | {statistics.median(result.ratios):.2f} |"
        )


def measure_cost(result: Measurement) -> gates.Gate:
    """Launch the ranks again until the ratio of the steps is known well enough."""
    samples = list(result.ratios)
    for _ in range(MAX_LAUNCHES):
        gate = gates.Gate(f"{result.strategy} step, {result.ranks} ranks, of gloo's", LIMIT, tuple(samples))
        if gate.spread <= gates.SPREAD and gate.verdict != "not judged":
            break
        samples += run(result.strategy, result.ranks).ratios
    return gate


def main() -> None:
    """Measure, or run as one rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--strategy", help=argparse.SUPPRESS)
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
        print()
    found = [problem for result in results for problem in problems(result)]
    print(*found, sep="\n", file=sys.stderr)
    limited = [result for result in results if result.strategy in LIMITED]
    missed = limited and not options.json and gates.report([measure_cost(result) for result in limited])
    sys.exit(bool(found or missed))


if __name__ == "__main__":
    main()
