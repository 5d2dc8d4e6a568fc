"""Peak memory and time of exports against the size of the model, on shards of synthetic Llama-like models.

    python packages/hpu-export/bench/memory.py [--folder FOLDER] [--gigabytes 1 2 4 8] [--ranks 8] [--large]

The shards are those of FSDP2: each rank has an equal part of the rows of each tensor, in fp32. The export is in bf16.
`--large` adds the largest tensors of a model of 70 billion parameters, and needs 18 GB of disk. The folder is removed
after each row. The exit code is 1 if a peak exceeds two of the largest chunks and what `import torch` takes.
"""

from __future__ import annotations

import argparse
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# Of Python with torch, in bytes.
_IMPORTS: Final = 600 * 10**6


def _llama(hidden: int, intermediate: int, vocabulary: int, layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield names and shapes."""
    yield "embed.weight", (vocabulary, hidden)
    for layer in range(layers):
        for name in ("q", "o"):
            yield f"layers.{layer}.{name}.weight", (hidden, hidden)
        for name in ("k", "v"):
            yield f"layers.{layer}.{name}.weight", (hidden // 8, hidden)
        for name in ("gate", "up"):
            yield f"layers.{layer}.{name}.weight", (intermediate, hidden)
        yield f"layers.{layer}.down.weight", (hidden, intermediate)
        yield f"layers.{layer}.norm.weight", (hidden,)
    yield "head.weight", (vocabulary, hidden)


def _write_shards(folder: Path, shapes: dict[str, tuple[int, ...]], ranks: int) -> int:
    """Write what `torch.distributed.checkpoint` does, tensor by tensor; return the bytes of the largest chunk."""
    folder.mkdir()
    metadata = Metadata(state_dict_metadata={}, planner_data={}, storage_data={})
    largest = 0
    for name, shape in shapes.items():
        key = f"model.{name}"
        metadata.planner_data[key] = ("model", *name.split("."))
        entry = TensorStorageMetadata(TensorProperties(torch.float32), torch.Size(shape), [])
        metadata.state_dict_metadata[key] = entry
        for rank, chunk in enumerate(torch.empty(shape, device="meta").chunk(ranks)):
            offsets = torch.Size([rank * -(-shape[0] // ranks), *[0] * (len(shape) - 1)])
            entry.chunks.append(ChunkStorageMetadata(offsets, chunk.size()))
            largest = max(largest, chunk.nbytes)
            with (folder / f"__{rank}_0.distcp").open("ab") as file:
                begin = file.tell()
                torch.save(torch.full(chunk.shape, 0.5), file)
                length = file.tell() - begin
            metadata.storage_data[MetadataIndex(key, offsets)] = _StorageInfo(f"__{rank}_0.distcp", begin, length)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    return largest


def _export(source: Path, to: Path) -> tuple[float, int, int]:
    """Export in a process of its own; return its seconds, peak resident and peak anonymous memory in bytes."""
    # The process's own counts: the peak that `wait4` returns includes that of this process before `exec`.
    peaks = {"VmHWM": 0, "RssAnon": 0}
    begin = time.perf_counter()
    command = [sys.executable, "-m", "hpu_export", str(source), "--to", str(to), "--dtype", "bf16"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603 - our own.
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        for name, value in re.findall(r"(VmHWM|RssAnon):\s+(\d+) kB", status):
            peaks[name] = max(peaks[name], int(value) * 1024)
        time.sleep(0.05)
    if process.returncode:
        raise RuntimeError(f"the export must end with 0, got {process.returncode}")
    return time.perf_counter() - begin, peaks["VmHWM"], peaks["RssAnon"]


def main() -> int:
    """Print a row for each model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default=None)
    parser.add_argument("--gigabytes", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    # A layer of this width has 202 MB, and the ends have 262 MB each.
    models: dict[str, Any] = {
        f"{size} GB": dict(_llama(2048, 8192, 32000, round((size * 1000 - 524) / 243))) for size in options.gigabytes
    }
    if options.large:
        models["70B's ends and a layer"] = dict(_llama(8192, 28672, 128256, 1))
    print("| model, fp32 | ranks | tensors | source | largest tensor | its chunk | peak | anonymous | seconds | MB/s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    missed = False
    for name, shapes in models.items():
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            chunk = _write_shards(Path(folder, "shards"), shapes, options.ranks)
            seconds, peak, anonymous = _export(Path(folder, "shards"), Path(folder, "out"))
            shutil.rmtree(folder, ignore_errors=True)
            Path(folder).mkdir(exist_ok=True)
        numels = [torch.Size(shape).numel() for shape in shapes.values()]
        total = 4 * sum(numels)
        cells = [f"{total / 1e9:.1f} GB", f"{4 * max(numels) / 1e6:,.0f} MB", f"{chunk / 1e6:,.0f} MB"]
        cells += [
            f"{peak / 1e6:,.0f} MB",
            f"{anonymous / 1e6:,.0f} MB",
            f"{seconds:.0f}",
            f"{total / 1e6 / seconds:.0f}",
        ]
        print(f"| {name} | {options.ranks} | {len(shapes)} | {' | '.join(cells)} |", flush=True)
        missed |= peak > 2 * chunk + _IMPORTS
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
