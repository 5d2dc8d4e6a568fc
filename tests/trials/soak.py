"""Train for long on simulated cards, and print by how much memory, descriptors and threads grow.

A tiny model is trained with DDP, logging, validation and checkpoints. After the first tenth of the steps, the memory of
host and card, the number of open files and that of threads must not grow; a line is fitted through the samples of each
rank. The weights of all ranks must be equal, bit for bit, at every sample.

    python tests/trials/soak.py [--ranks 8] [--steps 50000] [--every 1000]

`nox -s soak` calls it.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from harness import Table, parser, train

_SAMPLES: Final = 200
# Of training.py.
_BATCH_SIZE: Final = 8
_WARM_UP: Final = 0.1
_MAX_SECONDS: Final = 24 * 3600.0
# Of what a quantity is at the end of the warm-up, how much the fitted line may rise until the end: malloc's arenas and
# Python's own caches keep growing a little.
_MAX_GROWTH: Final = {"host KiB": 0.02, "card KiB": 0.0, "files": 0.0, "threads": 0.0}
# A process that holds a card also has open pipes and sockets that come and go.
_NOISE: Final = {"host KiB": 0.0, "card KiB": 1.0, "files": 1.0, "threads": 1.0}


def judge(samples: dict[int, list[dict[str, Any]]], steps: int, table: Table) -> None:
    """Add a row for each rank and quantity, which must be flat, and one for the weights, which must be equal."""
    for rank, series in sorted(samples.items()):
        settled = [sample for sample in series if sample["step"] > _WARM_UP * steps]
        at = [float(sample["step"]) for sample in settled]
        for name, limit in _MAX_GROWTH.items():
            values = [float(sample[name]) for sample in settled]
            rate = statistics.linear_regression(at, values).slope
            grows = rate * (at[-1] - at[0]) > max(limit * values[0], _NOISE[name])
            cells = (rank, name, f"{values[0]:,.0f}", f"{values[-1]:,.0f}", f"{1000 * rate:+.3f}")
            table.add(*cells, problems=["grows"] if grows else [])
    weights = [[(sample["step"], sample["weights"]) for sample in series] for series in samples.values()]
    different = [group[0][0] for group in zip(*weights, strict=True) if len(set(group)) > 1]
    problems = [f"differ between ranks from step {different[0]} on"] if different else []
    table.add("all", "weights", "", "", "", problems=problems)


def main() -> int:
    """Train, print the table, and return 1 if something grows or differs."""
    arguments = parser(__doc__)
    arguments.add_argument("--ranks", type=int, default=8)
    arguments.add_argument("--steps", type=int, default=50_000)
    arguments.add_argument(
        "--every", type=int, default=1000, help="steps from one validation and checkpoint to the next"
    )
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        words = ["--checkpoints", f"--sample-every={max(1, options.steps // _SAMPLES)}"]
        words += [f"--devices={options.ranks}", f"--steps={options.steps}", f"--every={options.every}"]
        words += [f"--samples={options.every * options.ranks * _BATCH_SIZE}"]
        began = time.monotonic()
        done = train(folder, *words, limit=_MAX_SECONDS, programs=[{"cards": options.ranks}])
        samples = {
            int(path.stem.removeprefix("rank-")): [json.loads(line) for line in path.read_text().splitlines()]
            for path in folder.glob("rank-*.jsonl")
        }
    if any(done.codes) or len(samples) != options.ranks or done.leaked:
        print(done.output)
        return 1
    print(f"{options.ranks} ranks, {options.steps:,} steps in {time.monotonic() - began:,.0f} s (simulated)\n")
    table = Table("rank", "quantity", "after warm-up", "at the end", "slope per 1,000 steps", options=options)
    judge(samples, options.steps, table)
    return min(table.wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
