"""Time what hpu-ddp and the simulator add to a DDP step: simulated cards over hccl against Lightning's DDP over gloo.

    python packages/hpu-ddp/bench/step.py [--ranks 1 2 4 8] [--json]

A step is forward, backward with averaged gradients, and AdamW, through Fabric, on one batch that is in place. Each rank
takes steps of both kinds in turn in one process with one thread, so that whatever else the machine does hits both;
ratios of neighbours are compared, and their median on rank 0 counts. For figures that count the machine should do
nothing else. They are simulated: they say nothing about cards. The exit code is 0 whatever they are.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

_WARM_UP: Final = 10
_LIMIT: Final = 1.10
# What the line begins with on which rank 0 says what it found, among what Lightning has to say.
_MARK: Final = "measured "


@dataclass(frozen=True)
class Workload:
    """What is trained.

    Attributes:
        make: Returns a model, a batch and its targets, on the CPU.
        steps: Steps of each kind on one rank; fewer on more ranks, which share the processors.
    """

    make: Callable[[], tuple[torch.nn.Module, torch.Tensor, torch.Tensor]]
    steps: int


@dataclass(frozen=True)
class Timing:
    """What was measured of a workload on a number of ranks; times are medians in milliseconds."""

    step: str
    ranks: int
    cpu_ms: float
    simulated_ms: float
    ratio: float
    limit: float = _LIMIT


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
    # Logits as cross entropy wants them: one row per token.
    model = nn.Sequential(encoder, nn.Linear(256, 10), nn.Flatten(0, 1))
    return model, torch.randn(8, 64, 256), torch.randint(10, (8 * 64,))


WORKLOADS: Final = {"3-layer MLP": Workload(mlp, 200), "4-layer transformer": Workload(transformer, 120)}


def make_step(workload: Workload, fabric: Any) -> Callable[[], object]:
    """Return a function that trains the workload's model by one step with a Fabric."""
    import torch
    from torch.nn import functional

    torch.manual_seed(fabric.global_rank)
    model, batch, targets = workload.make()
    batch, targets = batch.to(fabric.device), targets.to(fabric.device)
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), foreach=True))

    def step() -> None:
        optimizer.zero_grad()
        fabric.backward(functional.cross_entropy(model(batch), targets))
        optimizer.step()

    return step


def launched(ranks: int) -> tuple[Any, Any]:
    """Return Lightning's Fabric on CPU tensors and ours on simulated cards, both launched on this rank."""
    import torch.distributed as dist
    from lightning.fabric import Fabric
    from lightning.fabric.strategies.ddp import DDPStrategy

    from hpu_core import HPUAccelerator
    from hpu_ddp import FabricHPUParallelStrategy

    simulated = Fabric(accelerator=HPUAccelerator(), strategy=FabricHPUParallelStrategy(), devices=ranks)
    simulated.launch()
    # One process has one default group, which is ours; Lightning's DDP exchanges its gradients in another. Buckets are
    # as ours: how many there are is the user's choice, and not what is compared here.
    gloo = DDPStrategy(
        process_group_backend="gloo",
        process_group=dist.new_group(backend="gloo"),
        bucket_cap_mb=230,
        gradient_as_bucket_view=True,
    )
    cpu = Fabric(accelerator="cpu", strategy=gloo, devices=ranks)
    cpu.launch()
    return cpu, simulated


def measure(name: str, ranks: int) -> Timing:
    """Time steps of both kinds in turn, on this rank of several."""
    workload = WORKLOADS[name]
    cpu, simulated = (make_step(workload, fabric) for fabric in launched(ranks))
    seconds: list[tuple[float, float]] = []
    for count in range(-_WARM_UP, max(20, workload.steps // ranks)):
        begin = time.perf_counter()
        cpu()
        middle = time.perf_counter()
        simulated()
        end = time.perf_counter()
        if count >= 0:
            seconds.append((middle - begin, end - middle))
    cpu_ms, simulated_ms = (1000 * statistics.median(times) for times in zip(*seconds, strict=True))
    ratio = statistics.median(ours / theirs for theirs, ours in seconds)
    return Timing(name, ranks, cpu_ms, simulated_ms, ratio)


def be_rank(name: str, ranks: int) -> None:
    """Measure as the rank that the environment says, and print what rank 0 found as JSON."""
    import hpu_sim

    hpu_sim.activate(devices=ranks)

    import torch

    # Before the first backward pass: autograd's thread for the device keeps the number that it finds.
    torch.set_num_threads(1)
    timing = measure(name, ranks)
    if os.environ["LOCAL_RANK"] == "0":
        print(_MARK + json.dumps(asdict(timing)), flush=True)


def free_port() -> int:
    """Return a TCP port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_ranks(name: str, ranks: int) -> Timing:
    """Measure a workload on ranks of a machine of their own, and return what rank 0 found.

    Raises:
        SystemExit: A rank has failed, with what it wrote.
    """
    command = [sys.executable, __file__, "--rank-of", name, "--ranks", str(ranks)]
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    with tempfile.TemporaryDirectory(prefix="hpu-ddp-bench-") as folder, ExitStack() as stack:
        shared = os.environ | rendezvous | {"NODE_RANK": "0", "HPU_SIM_RUNTIME_DIR": folder, "OMP_NUM_THREADS": "1"}
        # Files, because nobody reads while the ranks run, and one that cannot write would hold up the others.
        files = [stack.enter_context(Path(folder, f"rank-{rank}").open("w+")) for rank in range(ranks)]
        processes = [
            subprocess.Popen(command, env=shared | {"LOCAL_RANK": str(rank)}, stdout=file, stderr=file)  # noqa: S603 - its own.
            for rank, file in enumerate(files)
        ]
        codes = [process.wait() for process in processes]
        outputs = [Path(file.name).read_text() for file in files]
    for rank, code in enumerate(codes):
        if code != 0:
            sys.exit(f"rank {rank} of {ranks} ended with exit code {code}:\n{outputs[rank]}")
    found = next(line for line in outputs[0].splitlines() if line.startswith(_MARK))
    return Timing(**json.loads(found.removeprefix(_MARK)))


def main() -> None:
    """Measure every workload on every number of ranks and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8], metavar="N", help="how many ranks")
    parser.add_argument("--json", action="store_true", help="print JSON rather than a table")
    parser.add_argument("--rank-of", choices=WORKLOADS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of is not None:
        be_rank(options.rank_of, options.ranks[0])
        return

    timings = [start_ranks(name, ranks) for name in WORKLOADS for ranks in options.ranks]
    if options.json:
        print(json.dumps([asdict(timing) for timing in timings], indent=2))
        return
    print(f"{'DDP step':22}{'ranks':>6}{'gloo, CPU':>13}{'simulated':>13}{'ratio':>9}{'limit':>9}")
    for timing in timings:
        times = f"{timing.cpu_ms:10.2f} ms{timing.simulated_ms:10.2f} ms"
        print(f"{timing.step:22}{timing.ranks:6}{times}{timing.ratio:8.3f}x{timing.limit:8.2f}x")


if __name__ == "__main__":
    main()
