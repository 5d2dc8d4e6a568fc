"""Record the steps of points.json once, so that judge.py predicts them without running programs.

    python packages/hpu-sim/bench/published/record.py [ID ...]

It needs transformers and peft. recordings/ has a file per point, of the whole model.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import encoding

import hpu_sim

FOLDER: Final = Path(__file__).parent
RECORDINGS: Final = FOLDER / "recordings"


def points() -> list[dict[str, Any]]:
    """Return the published points."""
    found: list[dict[str, Any]] = json.loads((FOLDER / "points.json").read_text(encoding="utf-8"))["points"]
    return found


def features(point: dict[str, Any]) -> dict[str, Any]:
    """Return what the planner's models read of a point's step."""
    import programs

    found = programs.record(point["model"], programs.Job(**point["job"]))
    return {"parameters": found.parameters, "trainable": found.trainable, **encoding.to_json(found.steady)}


def path(point: dict[str, Any]) -> Path:
    """Return the file of a point's features."""
    return RECORDINGS / f"{point['id']}.json.gz"


def main() -> None:
    """Record all points, or those that are named."""
    RECORDINGS.mkdir(exist_ok=True)
    found = [each for each in points() if not sys.argv[1:] or each["id"] in sys.argv[1:]]
    if len(found) > 1:
        # DeepSpeed keeps process groups, and runs once in a process.
        for point in found:
            subprocess.run([sys.executable, __file__, point["id"]], check=True)  # noqa: S603 - this program
        return
    hpu_sim.activate(devices=8)
    for point in found:
        text = json.dumps(features(point), separators=(",", ":"))
        # Without a time, so that equal features are equal files.
        path(point).write_bytes(gzip.compress(text.encode(), mtime=0))
        print(point["id"], len(text), flush=True)


if __name__ == "__main__":
    main()
