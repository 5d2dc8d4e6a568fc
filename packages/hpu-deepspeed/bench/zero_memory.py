"""What ZeRO's stages leave of a model's state on each simulated card, beside the formula of the ZeRO paper.

Trains a model of 20 million parameters with Adam in mixed precision, and looks at the card's memory after the third
backward pass: parameters and gradients in bfloat16, and the optimizer's parameters, momentum and variance in float32,
are all there, and no activations are. The last run of each number of cards has parameters and optimizer on NVMe, of
which the files are counted. Writes docs/memory.md and docs/memory.svg of this package.

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
# Elements. DeepSpeed's defaults of hundreds of millions are made for models of billions.
BUCKET: Final = 1_000_000

PARTS: Final = ("parameters", "optimizer", "gradients", "buckets and others")


@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes:
        stage: Of ZeRO.
        ranks: How many cards.
        parts: Bytes on the fullest card, by what they hold; together all that is in use there.
        files: Bytes of its rank's files on NVMe; 0 where nothing is offloaded.
    """

    stage: int
    ranks: int
    parts: dict[str, int]
    files: int

    @property
    def total(self) -> int:
        """Bytes in use on the fullest card."""
        return sum(self.parts.values())

    @property
    def expected(self) -> float:
        """Bytes by the paper's formula."""
        partitioned = {0: 0, 1: 12, 2: 14, 3: 16}[self.stage]
        return PARAMETERS * (16 - partitioned + partitioned / self.ranks)


def config(stage: int, nvme: str = "") -> dict[str, Any]:
    """Return DeepSpeed's configuration for a stage, and for a folder to offload to, if there is one."""
    buckets = {"reduce_bucket_size": BUCKET, "allgather_bucket_size": BUCKET}
    # Stage 3 gives parameters back as soon as they have been used.
    live = {"stage3_prefetch_bucket_size": BUCKET, "stage3_max_live_parameters": BUCKET, "stage3_max_reuse_distance": 0}
    disk = {"device": "nvme", "nvme_path": nvme}
    # As many buffers on the host as there are tensors, and all that is in none of them on NVMe.
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
    """Return the bytes of each storage on the card that one of the tensors lies in, by its address."""
    found = {}
    for tensor in tensors:
        if tensor.device.type == "hpu":
            storage = tensor.untyped_storage()
            if storage.nbytes():
                found[storage.data_ptr()] = storage.nbytes()
    return found


def tensors_in(value: Any, depth: int = 4) -> Iterator[Any]:
    """Give the tensors in containers."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, dict):
        yield from tensors_in(list(value.values()), depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part, depth - 1)


def parts_of(engine: Any, module: Any, in_use: int) -> dict[str, int]:
    """Return the bytes in use on this card by what they hold.

    Args:
        engine: DeepSpeed's.
        module: The model.
        in_use: Bytes in use, all in all.
    """
    parameters = list(module.parameters())
    optimizer = engine.optimizer
    basic = engine.basic_optimizer
    groups = {
        # ZeRO stage 3 keeps a rank's part of a parameter beside it.
        "parameters": storages([*parameters, *(p.ds_tensor for p in parameters if hasattr(p, "ds_tensor"))]),
        "optimizer": storages(
            [
                *tensors_in(list(basic.state.values())),
                *tensors_in([group["params"] for group in basic.param_groups]),
                # Stage 3 puts its parameters of 32 bit into the groups for the step alone.
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


def files_of(strategy: Any) -> int:
    """Return the bytes of the files that a strategy's rank has on NVMe."""
    folder = strategy.config["zero_optimization"].get("offload_optimizer", {}).get("nvme_path")
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) if folder else 0


def measure(ranks: int, disk: str) -> None:
    """Train with each stage, and with NVMe, and print one line of JSON per rank and training.

    Args:
        ranks: How many cards.
        disk: A folder to offload to.
    """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from hpu_core import HPUAccelerator, bridge, frameworks
    from hpu_deepspeed import HPUDeepSpeedStrategy

    lightning: Any = frameworks.current().pytorch()

    class Model(lightning.LightningModule):  # type: ignore[misc] # The class depends on what is installed.
        """Predicts nothing from nothing, with many parameters."""

        def __init__(self, before: int) -> None:
            super().__init__()
            self.before = before
            self.net = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))

        def training_step(self, batch: Any, index: int) -> Any:  # noqa: ARG002 - Lightning's signature.
            return self.net(batch[0].bfloat16()).float().square().mean()

        def on_after_backward(self) -> None:
            if self.trainer.global_step == 2:  # noqa: PLR2004 - the third.
                gc.collect()
                bridge.synchronize()
                in_use = bridge.memory_stats()["InUse"] - self.before
                strategy = self.trainer.strategy
                engine = strategy.deepspeed_engine
                parts = parts_of(engine, self.net, in_use)
                line = {"stage": engine.zero_optimization_stage(), "ranks": ranks, "parts": parts}
                line["files"] = files_of(strategy)
                # In one piece, because ranks write to the same place at the same time.
                os.write(1, (json.dumps(line) + "\n").encode())

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=1e-4)

    data = DataLoader(TensorDataset(torch.randn(3 * ranks, WIDTH)), batch_size=1)
    for stage, nvme in [*((stage, "") for stage in STAGES), (STAGES[-1], disk)]:
        gc.collect()
        before = bridge.memory_stats()["InUse"] if bridge.is_open() else 0
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
        trainer.fit(Model(before), data)
        # So that nothing of it is counted with the next.
        trainer.strategy.deepspeed_engine.destroy()
        trainer.strategy.model = trainer.strategy._lightning_module = None  # noqa: SLF001 - it has no way to let go.
        trainer.strategy.optimizers = []
        del trainer


def run(ranks: int) -> list[Measured]:
    """Measure all trainings in processes of their own; return what the fullest card has of each."""
    environment = {**os.environ, "HPU_SIM_DEVICES": str(max(RANKS)), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as disk:
        command = [sys.executable, "-W", "ignore", __file__, "--ranks", str(ranks), "--disk", disk]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - this file.
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"stage"')]
    found = [Measured(**line) for line in lines]
    groups: dict[tuple[int, bool], list[Measured]] = {}
    for one in found:
        groups.setdefault((one.stage, bool(one.files)), []).append(one)
    return [max(group, key=lambda one: one.total) for group in groups.values()]


def table(found: list[Measured]) -> str:
    """Return the figures as a table in Markdown."""
    head = "| stage | cards | measured | paper's formula | difference | " + " | ".join(PARTS) + " |"
    rows = [head, "|" + "---|" * (5 + len(PARTS))]
    for one in found:
        difference = f"{(one.total / one.expected - 1) * 100:+.1f} %"
        cells = [one.stage, one.ranks, f"{one.total:,}", f"{one.expected:,.0f}", difference]
        cells += [f"{one.parts[part]:,}" for part in PARTS]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def table_of_nvme(found: list[Measured]) -> str:
    """Return as a table what is left on cards, and what has gone to NVMe."""
    rows = ["| cards | on each card | files on NVMe, of each rank |", "|---|---|---|"]
    rows += [f"| {one.ranks} | {one.total:,} | {one.files:,} |" for one in found]
    return "\n".join(rows)


# Of the drawing, in pixels.
LEFT, TOP, HEIGHT, BAR, PITCH = 60, 30, 240, 34, 48
COLOURS: Final = dict(zip(PARTS, ("#14315f", "#3a76c4", "#8fb8e8", "#c9ccd1"), strict=True))


def plot(found: list[Measured]) -> str:
    """Return the figures as a drawing: a bar per run, and a line where the formula has it end."""
    most = max(max(one.total, one.expected) for one in found)
    width, height = LEFT + len(found) * PITCH + 20, TOP + HEIGHT + 80
    size = f'viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11" role="img">',
        "<title>Bytes of model state per simulated card, by stage of ZeRO and number of cards</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="16">MB per simulated card; the line is the formula of the ZeRO paper</text>',
        f'<text x="{LEFT - 6}" y="{TOP + HEIGHT + 16}" text-anchor="end">cards</text>',
    ]
    for megabytes in range(0, int(most / 1e6) + 1, 100):
        y = TOP + HEIGHT * (1 - megabytes * 1e6 / most)
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end" fill="#555">{megabytes}</text>')
        lines.append(f'<line x1="{LEFT}" x2="{width - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e6e6e6"/>')
    for index, one in enumerate(found):
        lines += column(one, LEFT + index * PITCH + (PITCH - BAR) // 2, most)
    for stage in STAGES:
        places = [index for index, one in enumerate(found) if one.stage == stage]
        middle = LEFT + (sum(places) / len(places) + 0.5) * PITCH
        lines.append(f'<text x="{middle:.0f}" y="{TOP + HEIGHT + 34}" text-anchor="middle">stage {stage}</text>')
    for index, part in enumerate(PARTS):
        x, y = LEFT + index * 130, TOP + HEIGHT + 60
        lines.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{COLOURS[part]}"/>')
        lines.append(f'<text x="{x + 18}" y="{y}">{part}</text>')
    return "\n".join([*lines, "</svg>", ""])


def column(one: Measured, x: int, most: float) -> list[str]:
    """Return a run's bar, from the left edge `x`, in a drawing that is `most` bytes high."""
    lines, base = [], float(TOP + HEIGHT)
    for part in PARTS:
        size = HEIGHT * one.parts[part] / most
        base -= size
        lines.append(f'<rect x="{x}" y="{base:.1f}" width="{BAR}" height="{size:.1f}" fill="{COLOURS[part]}"/>')
    y = TOP + HEIGHT * (1 - one.expected / most)
    ends = f'x1="{x - 4}" x2="{x + BAR + 4}" y1="{y:.1f}" y2="{y:.1f}"'
    lines.append(f'<line {ends} stroke="#c0392b" stroke-width="2"/>')
    lines.append(f'<text x="{x + BAR // 2}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{one.ranks}</text>')
    return lines


def put(text: str, name: str, rows: str) -> str:
    """Return a page with a table in its place."""
    begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    before, after = text.partition(begin)[0], text.partition(end)[2]
    return f"{before}{begin}{rows}{end}{after}"


def write(found: list[Measured]) -> None:
    """Write the tables into their places in docs/memory.md, and the drawing beside them."""
    page = DOCS / "memory.md"
    on_cards = [one for one in found if not one.files]
    text = put(page.read_text(encoding="utf-8"), "table", table(on_cards))
    text = put(text, "table of NVMe", table_of_nvme([one for one in found if one.files]))
    page.write_text(text, encoding="utf-8")
    (DOCS / "memory.svg").write_text(plot(on_cards), encoding="utf-8")


def main() -> None:
    """Measure everything, or (as one of several ranks) one number of ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, help="measure this many in these processes, and print what they find")
    parser.add_argument("--disk", default="", help="the folder that they offload to")
    given = parser.parse_args()
    if given.ranks is not None:
        measure(given.ranks, given.disk)
        return
    found = [one for count in RANKS for one in run(count)]
    found.sort(key=lambda one: (one.stage, one.ranks))
    write(found)
    print((DOCS / "memory.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
