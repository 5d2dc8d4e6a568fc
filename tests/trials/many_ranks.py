"""Run the tools for the sizes of large jobs, and print time, memory and length of what each prints.

    python tests/trials/many_ranks.py [PART...]

`nox -s many_ranks` calls it. Reports and traces of the ranks are made up here; no rank runs.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import BIN, Table, parser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ROOT = Path(__file__).parents[2]
_ENGINES = {
    "torchrun": ("--address", "node-001"),
    "mpirun": (),
    "slurm": ("--time", "12:00:00"),
    "kubernetes": ("--image", "image:1"),
    "kubernetes-mpi": ("--image", "image:1"),
    "ray": ("--address", "node-001"),
}
_PLANNED = """
import os
import torch
from lightning import LightningModule, Trainer

class Blocks(LightningModule):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.Sequential(*(torch.nn.TransformerEncoderLayer(512, 8, 2048) for _ in range(8)))

    def training_step(self, batch):
        return self.blocks(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

class Zeros(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 18

    def __getitem__(self, index):
        return (torch.zeros(128, 512),)

nodes = int(os.environ.get("NODES", "1"))
trainer = Trainer(accelerator="hpu", devices=8, num_nodes=nodes, max_steps=3, strategy="auto", precision="bf16-true",
                  logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Blocks(), torch.utils.data.DataLoader(Zeros(), batch_size=4))
"""


@dataclass(frozen=True)
class Used:
    """What a process used and printed.

    Attributes:
        seconds: Its processor time.
        mib: Its peak memory in MiB.
        output: What it printed.
        code: Its exit code.
    """

    seconds: float
    mib: float
    output: str
    code: int

    @property
    def size(self) -> str:
        """Number of lines and kB of the output."""
        return f"{self.output.count(chr(10))} lines, {len(self.output) / 1000:.1f} kB"


def measure(work: Callable[[], object]) -> Used:
    """Do something in a process of its own, and return what that used."""
    with tempfile.TemporaryFile() as file:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.dup2(file.fileno(), 1)
                work()
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        _, status, usage = os.wait4(pid, 0)
        file.seek(0)
        output = file.read().decode()
    code = os.waitstatus_to_exitcode(status)
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output, code)


def command(*words: object, **variables: str) -> Callable[[], object]:
    """Return a function that becomes a program of these packages."""
    name, *arguments = map(str, words)
    environment = {**os.environ, "COLUMNS": "120", **variables}
    return lambda: os.execve(BIN / name, [name, *arguments], environment)  # noqa: S606 - our own.


Row = tuple[str, str, Used, str]


def machine_report(index: int) -> dict[str, Any]:
    """Return a report of `hpu-doctor --json`: a note of all machines, and faults of machines 40, 77 and 300 to 303."""
    versions = {"driver": "1.24.0", "SynapseAI": "1.24.0.695", "torch": "2.10.0", "Python": "3.12.3", "cards": "8"}
    hint = "On the host, `sysctl -w vm.nr_hugepages=47500`; in Kubernetes, request hugepages-2Mi."
    problems = [{"blocks_training": False, "message": "0 MiB of huge pages are free", "hint": hint}]
    if 300 <= index < 304:
        versions["driver"] = "1.23.0"
    if index == 40:
        versions["cards"] = "7"
    if index == 77:
        used = "/dev/accel/accel3 (module 3) is in use by pid 4711 (python train.py)"
        problems.append({"blocks_training": True, "message": used, "hint": "End the process if it is left over."})
    names = ["cards and software", "driver", "busy cards", "open files", "logs", "recipe cache", "MASTER_ADDR", "clock"]
    checks = [{"name": name, "detail": "detail " * 8, "problems": []} for name in names]
    return {
        "schema_version": 1,
        "host": f"node-{index:03}",
        "boot_id": f"{index}",
        "rank": 8 * index,
        "can_train": len(problems) == 1,
        "versions": versions,
        "checks": [*checks, {"name": "huge pages", "detail": "0 MiB", "problems": problems}],
    }


def compare() -> Iterator[Row]:
    """Compare machines by their reports."""
    for count in (8, 128, 512):
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / f"{index:03}.json" for index in range(count)]
            for index, file in enumerate(files):
                file.write_text(json.dumps(machine_report(index)), encoding="utf-8")
            used = measure(command("hpu-doctor", "compare", *files))
        yield "hpu-doctor compare", f"{count} machines", used, used.size


def collectives() -> Iterator[Row]:
    """Report on the collectives of ranks with a slow rank, a slow machine and a machine that did not report."""

    def report(size: int) -> None:
        import random

        from hpu_doctor.collectives.issues import find_issues, to_json
        from hpu_doctor.collectives.measurement import RankReport
        from hpu_doctor.text_report import format_collectives

        noise = random.Random(0)
        slow_machine, missing = size // 16, size // 8 - 1

        def link(source: int, rank: int) -> float:
            machines = {source // 8, rank // 8}
            usual = 1e-3 if len(machines) == 1 else 8e-3
            return usual * (5 if slow_machine in machines and len(machines) > 1 else 1) * noise.uniform(0.9, 1.1)

        def result(rank: int) -> RankReport | None:
            if rank // 8 == missing:
                return None
            links = {source: link(source, rank) for source in range(size) if source != rank}
            own = 1e-3 * (4 if rank == 3 else 1)
            return RankReport(
                rank=rank,
                host=f"node-{rank // 8:03}",
                is_finished=True,
                local_seconds=own,
                seconds={"all-reduce": 0.01},
                link_seconds=links,
            )

        reports = [result(rank) for rank in range(size)]
        plain = to_json(size, 1 << 22, reports, find_issues(reports))
        print(format_collectives(plain))
        print(f"JSON {len(json.dumps(plain)) / 1e6:.1f} MB", end="")

    for size in (16, 64, 256, 1024):
        used = measure(lambda size=size: report(size))  # type: ignore[misc]
        yield "report of check-collectives", f"{size} ranks", used, f"{used.size}, {used.output[-12:].strip()}"


def profiler() -> Iterator[Row]:
    """Report on traces of ranks, one of which computes longer."""
    sys.path.insert(0, str(_ROOT / "packages" / "hpu-profiler"))
    for size in (1, 8, 64):
        with tempfile.TemporaryDirectory() as folder:

            def write(size: int = size, folder: str = folder) -> None:
                faults: Any = importlib.import_module("tests.test_faults")
                for rank in range(size):
                    step = faults.Step(computing=110 if rank == size // 2 else 80, small_kernels=500)
                    file = Path(folder) / f"fit-{rank}.pt.trace.json"
                    faults.write_rank(lambda _, step=step: step, rank, 110 - step.computing, file)

            measure(write)
            megabytes = sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6
            page = Path(folder) / "page.html"
            used = measure(command("hpu-profiler", "report", folder, "--html", page))
            size_of_page = f"{used.size}, page {page.stat().st_size / 1000:.0f} kB"
        yield "hpu-profiler report", f"{size} ranks, {megabytes:.0f} MB", used, size_of_page


def plan() -> Iterator[Row]:
    """Plan a model of 25 million parameters."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(_PLANNED, encoding="utf-8")
        for strategy in ("hpu_ddp", "hpu_fsdp", "hpu_deepspeed"):
            for size in (8, 512, 8192):
                options = ("--nodes", size // 8, "--devices", 8, "--strategy", strategy)
                used = measure(command("hpu-sim", "plan", *options, script, NODES=str(size // 8)))
                yield f"hpu-sim plan, {strategy}", f"{size} ranks", used, f"{used.size}"


def launch() -> Iterator[Row]:
    """Print the command, script or manifest of each engine."""
    for engine, options in _ENGINES.items():
        for nodes in (2, 128):
            hosts = ",".join(f"node-{index:03}" for index in range(1, nodes + 1))
            more = ("--hosts", hosts) if engine == "mpirun" else ()
            words = ("hpu-launch", "--engine", engine, "--nodes", nodes, *options, *more, "train.py")
            used = measure(command(*words))
            longest = max(map(len, used.output.splitlines()))
            yield f"hpu-launch {engine}", f"{nodes} machines", used, f"{used.size}, longest line {longest}"


PARTS = (compare, collectives, profiler, plan, launch)


def main() -> int:
    """Print the table; return 1 if a part failed."""
    arguments = parser(__doc__)
    arguments.add_argument("parts", nargs="*", help="all by default", metavar="PART")
    options = arguments.parse_args()
    table = Table("what", "size", "processor seconds", "MiB", "result", options=options)
    for part in PARTS:
        if options.parts and part.__name__ not in options.parts:
            continue
        for what, size, used, result in part():
            problems = [] if used.code in {0, 1} and used.output else [f"exit code {used.code}"]
            row = (what, size, f"{used.seconds:.1f}", f"{used.mib:.0f}", result)
            table.add(*row, problems=problems, output=used.output)
    return min(table.wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
