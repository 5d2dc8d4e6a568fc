"""Memory benchmark: model state per simulated device in each ZeRO stage, compared with the formula of the ZeRO paper.

Trains a model of 20 million parameters with Adam in mixed precision and reads the device's memory in use after the
third backward pass. At that point, parameters and gradients in bfloat16 and the optimizer's parameters, momentum and
variance in float32 are allocated, and no activations. The last run of each number of devices offloads parameters and
optimizer to NVMe and counts the swap files. Writes docs/memory.md and docs/memory.svg of this package.

Source of the formula: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020,
section 5: for P parameters on N cards, 16 P bytes without ZeRO; 4 P + 12 P / N, 2 P + 14 P / N and 16 P / N bytes with
its stages 1, 2 and 3.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DOCS: Final = Path(__file__).parent.parent / "docs"
RANKS: Final = (1, 2, 4)
STAGES: Final = (0, 1, 2, 3)
LAYERS: Final = 20
WIDTH: Final = 1000
PARAMETERS: Final = LAYERS * (WIDTH * WIDTH + WIDTH)
# Elements. DeepSpeed's defaults, hundreds of millions, suit models of billions of parameters.
BUCKET_SIZE: Final = 1_000_000

PARTS: Final = ("parameters", "optimizer", "gradients", "buckets and others")


@dataclass(frozen=True)
class Measurement:
    """Result of one run, from the rank with the most memory in use.

    Attributes:
        stage: ZeRO stage.
        ranks: Number of devices.
        parts: Bytes in use on the device, by their content.
        files: Bytes of the rank's swap files; 0 without offloading.
    """

    stage: int
    ranks: int
    parts: dict[str, int]
    files: int

    @property
    def total(self) -> int:
        """Bytes in use on the device."""
        return sum(self.parts.values())

    @property
    def expected(self) -> float:
        """Bytes by the paper's formula."""
        partitioned = {0: 0, 1: 12, 2: 14, 3: 16}[self.stage]
        return PARAMETERS * (16 - partitioned + partitioned / self.ranks)


def config(stage: int, nvme: str = "") -> dict[str, Any]:
    """Return DeepSpeed's configuration for a stage, optionally with a directory to offload to."""
    buckets = {"reduce_bucket_size": BUCKET_SIZE, "allgather_bucket_size": BUCKET_SIZE}
    # Releases gathered parameters right after use.
    live = {
        "stage3_prefetch_bucket_size": BUCKET_SIZE,
        "stage3_max_live_parameters": BUCKET_SIZE,
        "stage3_max_reuse_distance": 0,
    }
    disk = {"device": "nvme", "nvme_path": nvme}
    # One host buffer per tensor; everything else is on NVMe.
    offload = {
        "offload_param": {**disk, "buffer_count": 2 * LAYERS, "buffer_size": WIDTH * WIDTH, "max_in_cpu": 0},
        "offload_optimizer": disk,
    }
    return {
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            **(offload if nvme else {}),
            "stage": stage,
            "overlap_comm": False,
            **buckets,
            **(live if stage == STAGES[-1] else {}),
        },
    }


def storages(tensors: Iterable[Any]) -> dict[int, int]:
    """Return the bytes of each distinct device storage of the tensors, by its address."""
    found = {}
    for tensor in tensors:
        if tensor.device.type == "hpu":
            storage = tensor.untyped_storage()
            if storage.nbytes():
                found[storage.data_ptr()] = storage.nbytes()
    return found


def tensors_in(value: Any, depth: int = 4) -> Iterator[Any]:
    """Yield the tensors in nested containers."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, dict):
        yield from tensors_in(list(value.values()), depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part, depth - 1)


def parts_of(engine: Any, module: Any, in_use: int) -> dict[str, int]:
    """Return the bytes in use on this device by their content.

    Args:
        engine: The DeepSpeed engine.
        module: The model.
        in_use: Total bytes in use.
    """
    parameters = list(module.parameters())
    optimizer = engine.optimizer
    basic = engine.basic_optimizer
    groups = {
        # In stage 3, `ds_tensor` is the rank's partition of a parameter.
        "parameters": storages([*parameters, *(p.ds_tensor for p in parameters if hasattr(p, "ds_tensor"))]),
        "optimizer": storages(
            [
                *tensors_in(list(basic.state.values())),
                *tensors_in([group["params"] for group in basic.param_groups]),
                # In stage 3, the float32 parameters are in the parameter groups only during the step.
                *tensors_in(getattr(optimizer, "fp32_partitioned_groups_flat", None)),
            ]
        ),
        "gradients": storages(
            [
                *(p.grad for p in parameters if p.grad is not None),
                *tensors_in(getattr(optimizer, "averaged_gradients", None)),
                *tensors_in(getattr(optimizer, "all_grad_tensors", None)),
                *tensors_in(getattr(optimizer, "grad_partitions_flat_buffer", None)),
            ]
        ),
    }
    counted: set[int] = set()
    parts = {}
    for name, found in groups.items():
        parts[name] = sum(size for address, size in found.items() if address not in counted)
        counted |= set(found)
    parts[PARTS[-1]] = in_use - sum(parts.values())
    return parts


def swap_file_bytes(strategy: Any) -> int:
    """Return the bytes of this rank's swap files."""
    directory = strategy.config["zero_optimization"].get("offload_optimizer", {}).get("nvme_path")
    return sum(file.stat().st_size for file in Path(directory).rglob("*") if file.is_file()) if directory else 0


def measure(ranks: int, disk: str) -> None:
    """Train with each stage and with NVMe offload, and print one line of JSON per rank and run.

    Args:
        ranks: Number of devices.
        disk: Directory to offload to.
    """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from hpu_core import HPUAccelerator, bridge, frameworks
    from hpu_deepspeed import HPUDeepSpeedStrategy

    lightning: Any = frameworks.current().pytorch()

    class Model(lightning.LightningModule):  # type: ignore[misc] # The class depends on the framework.
        """Stack of linear layers trained on random data."""

        def __init__(self, baseline: int) -> None:
            super().__init__()
            self.baseline = baseline
            self.net = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))

        def training_step(self, batch: Any, index: int) -> Any:  # noqa: ARG002 - Lightning's signature.
            return self.net(batch[0].bfloat16()).float().square().mean()

        def on_after_backward(self) -> None:
            if self.trainer.global_step == 2:  # noqa: PLR2004 - the third.
                gc.collect()
                bridge.synchronize()
                in_use = bridge.memory_stats()["InUse"] - self.baseline
                strategy = self.trainer.strategy
                engine = strategy.deepspeed_engine
                parts = parts_of(engine, self.net, in_use)
                line = {"stage": engine.zero_optimization_stage(), "ranks": ranks, "parts": parts}
                line["files"] = swap_file_bytes(strategy)
                # One write per line, because the ranks share the pipe.
                os.write(1, (json.dumps(line) + "\n").encode())

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-4)

    data = DataLoader(TensorDataset(torch.randn(3 * ranks, WIDTH)), batch_size=1)
    for stage, nvme in [*((stage, "") for stage in STAGES), (STAGES[-1], disk)]:
        gc.collect()
        baseline = bridge.memory_stats()["InUse"] if bridge.is_open() else 0
        trainer = lightning.Trainer(
            accelerator=HPUAccelerator(),
            strategy=HPUDeepSpeedStrategy(config=config(stage, nvme)),
            devices=ranks,
            precision="bf16-mixed",
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Model(baseline), data)
        # Frees this run's memory before the next one is measured.
        trainer.strategy.deepspeed_engine.destroy()
        trainer.strategy.model = trainer.strategy._lightning_module = None  # noqa: SLF001 - no public way to drop it.
        trainer.strategy.optimizers = []
        del trainer


def run(ranks: int) -> list[Measurement]:
    """Measure all configurations in a subprocess and return the largest measurement of each."""
    environment = {**os.environ, "HPU_SIM_DEVICES": str(max(RANKS)), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as disk:
        command = [sys.executable, "-W", "ignore", __file__, "--ranks", str(ranks), "--disk", disk]
        result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - this file.
    lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"stage"')]
    groups: dict[tuple[int, bool], list[Measurement]] = {}
    for measurement in (Measurement(**line) for line in lines):
        groups.setdefault((measurement.stage, bool(measurement.files)), []).append(measurement)
    return [max(group, key=lambda measurement: measurement.total) for group in groups.values()]


def device_table(measurements: list[Measurement]) -> str:
    """Return a Markdown table of memory per device."""
    head = "| stage | cards | measured | paper's formula | difference | " + " | ".join(PARTS) + " |"
    rows = [head, "|" + "---|" * (5 + len(PARTS))]
    for row in measurements:
        difference = f"{(row.total / row.expected - 1) * 100:+.1f} %"
        cells = [row.stage, row.ranks, f"{row.total:,}", f"{row.expected:,.0f}", difference]
        cells += [f"{row.parts[part]:,}" for part in PARTS]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def nvme_table(measurements: list[Measurement]) -> str:
    """Return a Markdown table of device memory and swap files with NVMe offload."""
    rows = ["| cards | on each card | files on NVMe, of each rank |", "|---|---|---|"]
    rows += [f"| {row.ranks} | {row.total:,} | {row.files:,} |" for row in measurements]
    return "\n".join(rows)


# Layout of the plot, in pixels.
LEFT, TOP, HEIGHT, BAR_WIDTH, BAR_STEP = 60, 30, 240, 34, 48
COLORS: Final = dict(zip(PARTS, ("#14315f", "#3a76c4", "#8fb8e8", "#c9ccd1"), strict=True))


def plot(measurements: list[Measurement]) -> str:
    """Return an SVG with one bar per run and a line at the formula's value."""
    top = max(max(row.total, row.expected) for row in measurements)
    width, height = LEFT + len(measurements) * BAR_STEP + 20, TOP + HEIGHT + 80
    size = f'viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11" role="img">',
        "<title>Bytes of model state per simulated card, by stage of ZeRO and number of cards</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="16">MB per simulated card; the line is the formula of the ZeRO paper</text>',
        f'<text x="{LEFT - 6}" y="{TOP + HEIGHT + 16}" text-anchor="end">cards</text>',
    ]
    for tick in range(0, int(top / 1e6) + 1, 100):
        y = TOP + HEIGHT * (1 - tick * 1e6 / top)
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end" fill="#555">{tick}</text>')
        lines.append(f'<line x1="{LEFT}" x2="{width - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e6e6e6"/>')
    for index, row in enumerate(measurements):
        lines += bar(row, LEFT + index * BAR_STEP + (BAR_STEP - BAR_WIDTH) // 2, top)
    for stage in STAGES:
        columns = [index for index, row in enumerate(measurements) if row.stage == stage]
        center = LEFT + (sum(columns) / len(columns) + 0.5) * BAR_STEP
        lines.append(f'<text x="{center:.0f}" y="{TOP + HEIGHT + 34}" text-anchor="middle">stage {stage}</text>')
    for index, part in enumerate(PARTS):
        x, y = LEFT + index * 130, TOP + HEIGHT + 60
        lines.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{COLORS[part]}"/>')
        lines.append(f'<text x="{x + 18}" y="{y}">{part}</text>')
    return "\n".join([*lines, "</svg>", ""])


def bar(row: Measurement, x: int, top: float) -> list[str]:
    """Return the bar of one run at the left edge `x`, in a plot whose y axis ends at `top` bytes."""
    lines, base = [], float(TOP + HEIGHT)
    for part in PARTS:
        size = HEIGHT * row.parts[part] / top
        base -= size
        lines.append(f'<rect x="{x}" y="{base:.1f}" width="{BAR_WIDTH}" height="{size:.1f}" fill="{COLORS[part]}"/>')
    y = TOP + HEIGHT * (1 - row.expected / top)
    ends = f'x1="{x - 4}" x2="{x + BAR_WIDTH + 4}" y1="{y:.1f}" y2="{y:.1f}"'
    lines.append(f'<line {ends} stroke="#c0392b" stroke-width="2"/>')
    lines.append(f'<text x="{x + BAR_WIDTH // 2}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{row.ranks}</text>')
    return lines


def replace_table(text: str, name: str, rows: str) -> str:
    """Return a page with the table between two marker comments replaced."""
    begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    before, after = text.partition(begin)[0], text.partition(end)[2]
    return f"{before}{begin}{rows}{end}{after}"


def write(measurements: list[Measurement]) -> None:
    """Update the tables in docs/memory.md and write the plot next to it."""
    page = DOCS / "memory.md"
    on_device = [row for row in measurements if not row.files]
    text = replace_table(page.read_text(encoding="utf-8"), "table", device_table(on_device))
    text = replace_table(text, "table of NVMe", nvme_table([row for row in measurements if row.files]))
    page.write_text(text, encoding="utf-8")
    (DOCS / "memory.svg").write_text(plot(on_device), encoding="utf-8")


def main() -> None:
    """Measure every number of ranks; with --ranks, a single one in this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, help="measure this number of ranks and print the results")
    parser.add_argument("--disk", default="", help="directory to offload to")
    args = parser.parse_args()
    if args.ranks is not None:
        measure(args.ranks, args.disk)
        return
    measurements = [row for count in RANKS for row in run(count)]
    measurements.sort(key=lambda row: (row.stage, row.ranks))
    write(measurements)
    print((DOCS / "memory.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
