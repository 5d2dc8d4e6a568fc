"""Train for long on simulated cards, and print by how much memory, descriptors and threads grow.

A tiny model is trained with DDP, logging, validation and checkpoints. After the first tenth of the steps, the memory of
host and card, the number of open files and that of threads must not grow; a line is fitted through the samples of each
rank. The weights of all ranks must be equal, bit for bit, at every sample.

    python tests/trials/soak.py [--ranks 8] [--steps 50000] [--every 1000]

`nox -s soak` calls it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from hpu_testing import Program, machine_env

_PROGRAM: Final = Path(__file__).with_name("training.py").resolve()
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


def slope(points: list[tuple[float, float]]) -> float:
    """Return the slope of the line with the smallest squared distance from the points."""
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def judge(samples: dict[int, list[dict[str, Any]]], steps: int) -> list[str]:
    """Print a row for each rank and quantity; return what is not flat or not equal."""
    problems = []
    print("| rank | quantity | after warm-up | at the end | slope per 1,000 steps |")
    print("|---|---|---|---|---|")
    for rank, series in sorted(samples.items()):
        settled = [sample for sample in series if sample["step"] > _WARM_UP * steps]
        for name, limit in _MAX_GROWTH.items():
            points = [(float(sample["step"]), float(sample[name])) for sample in settled]
            rate, first = slope(points), points[0][1]
            print(f"| {rank} | {name} | {first:,.0f} | {points[-1][1]:,.0f} | {1000 * rate:+.3f} |")
            if rate * (points[-1][0] - points[0][0]) > max(limit * first, _NOISE[name]):
                problems.append(f"rank {rank}: {name} grows by {1000 * rate:+.3f} per 1,000 steps")
    weights = [[(sample["step"], sample["weights"]) for sample in series] for series in samples.values()]
    different = [group[0][0] for group in zip(*weights, strict=True) if len(set(group)) > 1]
    if different:
        problems.append(f"weights differ between ranks from step {different[0]} on")
    return problems


def main() -> int:
    """Train, print the table, and return 1 if something grows or differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--every", type=int, default=1000, help="steps from one validation and checkpoint to the next")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        command = [
            sys.executable,
            str(_PROGRAM),
            "--checkpoints",
            f"--sample-every={max(1, options.steps // _SAMPLES)}",
        ]
        command += [f"--devices={options.ranks}", f"--steps={options.steps}", f"--every={options.every}"]
        command += [f"--samples={options.every * options.ranks * _BATCH_SIZE}"]
        began = time.monotonic()
        with Program(command, machine_env(options.ranks, folder / "machine"), folder) as program:
            done = program.wait(_MAX_SECONDS)
        samples = {
            int(path.stem.removeprefix("rank-")): [json.loads(line) for line in path.read_text().splitlines()]
            for path in folder.glob("rank-*.jsonl")
        }
    if done.code != 0 or len(samples) != options.ranks or done.leaked_pids:
        print(done.output)
        return 1
    problems = judge(samples, options.steps)
    print(f"\n{options.ranks} ranks, {options.steps:,} steps in {time.monotonic() - began:,.0f} s (simulated)")
    print("flat, and no drift between ranks" if not problems else "\n".join(problems))
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main())
