"""Step time of DDP on simulated devices over hccl, relative to Lightning's DDP on the CPU over gloo.

    python packages/hpu-ddp/bench/step.py [--ranks 1 2 4 8]

A step is forward, backward with gradient averaging, and AdamW, through Fabric, on one batch that is on the device. Each
rank alternates between the two kinds of step in one process with one thread, so other load affects both. The result is
the median ratio of consecutive steps on rank 0. Run it on an idle machine. The figures are simulated and do not predict
the speed of real cards. The exit code is 1 if a limit is missed or cannot be judged.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

import gates

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

_WARM_UP: Final = 10
_MOST_LAUNCHES: Final = 5
# On several ranks, and on one, where gloo has nothing to do.
_LIMIT: Final = 1.05
_LIMIT_OF_ONE: Final = 1.10
# Distinguishes the line of rank 0's result from Lightning's output.
_RESULT_PREFIX: Final = "measured "


@dataclass(frozen=True)
class Benchmark:
    """Model and number of steps to measure.

    Attributes:
        make: Returns a model, a batch and its targets, on the CPU.
        steps: Steps of each kind on one rank; divided by the number of ranks, which share the processors.
    """

    make: Callable[[], tuple[torch.nn.Module, torch.Tensor, torch.Tensor]]
    steps: int


def mlp() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """Return three linear layers of width 1024 with 2.1 million parameters, and a batch of 256."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return model, torch.randn(256, 1024), torch.randint(10, (256,))


def transformer() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """Return four encoder layers of width 256 with 3.2 million parameters, and a batch of 8 sequences of 64."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(256, nhead=4, dim_feedforward=1024, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False)
    # Cross entropy takes logits with one row per token.
    model = nn.Sequential(encoder, nn.Linear(256, 10), nn.Flatten(0, 1))
    return model, torch.randn(8, 64, 256), torch.randint(10, (8 * 64,))


BENCHMARKS: Final = {"3-layer MLP": Benchmark(mlp, 200), "4-layer transformer": Benchmark(transformer, 120)}


def make_step(benchmark: Benchmark, fabric: Any) -> Callable[[], object]:
    """Return a function that trains a benchmark's model by one step with Fabric."""
    import torch
    from torch.nn import functional

    torch.manual_seed(fabric.global_rank)
    model, batch, targets = benchmark.make()
    batch, targets = batch.to(fabric.device), targets.to(fabric.device)
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), foreach=True))

    def step() -> None:
        optimizer.zero_grad()
        fabric.backward(functional.cross_entropy(model(batch), targets))
        optimizer.step()

    return step


def launch_both(ranks: int) -> tuple[Any, Any]:
    """Return Lightning's Fabric on CPU tensors and Fabric on simulated devices, launched on this rank."""
    import torch.distributed as dist
    from lightning.fabric import Fabric
    from lightning.fabric.strategies.ddp import DDPStrategy

    from hpu_core import HPUAccelerator
    from hpu_ddp import FabricHPUParallelStrategy

    simulated = Fabric(accelerator=HPUAccelerator(), strategy=FabricHPUParallelStrategy(), devices=ranks)
    simulated.launch()
    # The default process group is hccl, so Lightning's DDP needs another one. The comparison uses the same buckets.
    gloo = DDPStrategy(
        process_group_backend="gloo",
        process_group=dist.new_group(backend="gloo"),
        bucket_cap_mb=230,
        gradient_as_bucket_view=True,
    )
    cpu = Fabric(accelerator="cpu", strategy=gloo, devices=ranks)
    cpu.launch()
    return cpu, simulated


def measure(name: str, ranks: int) -> list[float]:
    """Return the ratios of alternating steps of both kinds on this rank."""
    benchmark = BENCHMARKS[name]
    cpu, simulated = (make_step(benchmark, fabric) for fabric in launch_both(ranks))
    for _ in range(_WARM_UP):
        gates.ratio(simulated, cpu)
    return [gates.ratio(simulated, cpu) for _ in range(max(20, benchmark.steps // ranks))]


def run_rank(name: str, ranks: int) -> None:
    """Measure on the rank that the environment defines, and print rank 0's ratios as JSON."""
    import hpu_sim

    hpu_sim.activate(devices=ranks)

    import torch

    # Before the first backward pass, because autograd's device thread keeps the number of threads at its start.
    torch.set_num_threads(1)
    ratios = measure(name, ranks)
    if os.environ["LOCAL_RANK"] == "0":
        print(_RESULT_PREFIX + json.dumps(ratios), flush=True)


def free_port() -> int:
    """Return a free TCP port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch_ranks(name: str, ranks: int) -> list[float]:
    """Launch the ranks on a simulated machine of their own, and return the result of rank 0.

    Raises:
        SystemExit: A rank failed; the message has its output.
    """
    command = [sys.executable, __file__, "--rank-of", name, "--ranks", str(ranks)]
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    with tempfile.TemporaryDirectory(prefix="hpu-ddp-bench-") as folder, ExitStack() as stack:
        shared = os.environ | rendezvous | {"NODE_RANK": "0", "HPU_SIM_RUNTIME_DIR": folder, "OMP_NUM_THREADS": "1"}
        # Files, because a rank that writes to a full pipe would block the others.
        files = [stack.enter_context(Path(folder, f"rank-{rank}").open("w+")) for rank in range(ranks)]
        processes = [
            subprocess.Popen(command, env=shared | {"LOCAL_RANK": str(rank)}, stdout=file, stderr=file)  # noqa: S603 - this script.
            for rank, file in enumerate(files)
        ]
        codes = [process.wait() for process in processes]
        outputs = [Path(file.name).read_text() for file in files]
    for rank, code in enumerate(codes):
        if code != 0:
            sys.exit(f"rank {rank} of {ranks} exited with code {code}:\n{outputs[rank]}")
    result = next(line for line in outputs[0].splitlines() if line.startswith(_RESULT_PREFIX))
    ratios: list[float] = json.loads(result.removeprefix(_RESULT_PREFIX))
    return ratios


def measure_gate(name: str, ranks: int) -> gates.Gate:
    """Launch the ranks again until the ratio is known well enough."""
    samples: list[float] = []
    for _ in range(_MOST_LAUNCHES):
        samples += launch_ranks(name, ranks)
        limit = _LIMIT if ranks > 1 else _LIMIT_OF_ONE
        gate = gates.Gate(f"DDP step, {name}, {ranks} ranks, of gloo's", limit, tuple(samples))
        # Eight ranks on two processors take minutes.
        figures = f"{gate.median:.3f}x after {len(samples)} samples, ±{100 * gate.spread:.1f} %"
        print(f"{gate.name}: {figures}", file=sys.stderr, flush=True)
        if gate.spread <= gates.SPREAD and gate.verdict != "not judged":
            break
    return gate


def main() -> int:
    """Measure each benchmark on each number of ranks, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8], metavar="N", help="numbers of ranks")
    parser.add_argument("--rank-of", choices=BENCHMARKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of is not None:
        run_rank(options.rank_of, options.ranks[0])
        return 0

    return gates.report([measure_gate(name, ranks) for name in BENCHMARKS for ranks in options.ranks])


if __name__ == "__main__":
    sys.exit(main())
