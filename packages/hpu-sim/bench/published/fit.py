"""Fit the planner's model of time on published training speeds, cross-validate it, and write the record.

    python packages/hpu-sim/bench/published/fit.py [--write]

The steps are recorded already (record.py), so a fit takes minutes. Nothing is measured here: the truth is what others
published. Parameters are fitted on the declared half, within a prior range each. The headline leaves out one model family
at a time: its points are predicted with parameters that were fitted on all other families. ``--write`` writes the ranges
into hardware.json and the table into docs/records/planner.md.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import itertools
import json
import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from programs import DEPTHS, MODELS, Job
from record import FOLDER, path, points
from scipy.optimize import least_squares

from hpu_sim.prediction import encoding, zero
from hpu_sim.prediction.hardware import from_ranges
from hpu_sim.prediction.recording import Recording, StepRecording
from hpu_sim.prediction.time_model import timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from hpu_sim.prediction.hardware import Hardware

HARDWARE: Final = FOLDER.parents[1] / "src/hpu_sim/data/hardware.json"
RECORD: Final = FOLDER.parents[3] / "docs/records/planner.md"
GENERATIONS: Final = ("GAUDI", "GAUDI2", "GAUDI3")
# Goals of the cross-validation.
MEDIAN, WORST, COVERAGE, WIDTH = 0.15, 0.35, 0.8, 1.5
# Intel's advice for ZeRO on Gaudi, and DeepSpeed's default buckets.
_ZERO: Final = {"overlap_comm": False, "reduce_bucket_size": 500_000_000, "allgather_bucket_size": 500_000_000}


@dataclass(frozen=True)
class Parameter:
    """Fitted parameter.

    Attributes:
        name: Its name in hardware.json.
        generation: Generation that has its own; empty if all share it.
        slow: Slow end of its prior range.
        fast: Fast end.
    """

    name: str
    generation: str
    slow: float
    fast: float

    @property
    def middle(self) -> float:
        """Middle of the prior range, on the scale of the fit."""
        return (self.encode(self.slow) + self.encode(self.fast)) / 2

    @property
    def spread(self) -> float:
        """Standard deviation of the prior: its range has two on each side."""
        return abs(self.encode(self.fast) - self.encode(self.slow)) / 4

    def encode(self, value: float) -> float:
        """Return a value on the scale of the fit: logarithmic, but for shares that may be 0."""
        return value if self.is_share else math.log(value)

    def decode(self, value: float) -> float:
        """Return the value of a number on the scale of the fit, within the prior range."""
        found = value if self.is_share else math.exp(value)
        low, high = sorted((self.slow, self.fast))
        return min(max(found, low), high)

    @property
    def is_share(self) -> bool:
        """Whether the range begins at 0."""
        return self.slow == 0


@functools.cache
def parameters() -> tuple[Parameter, ...]:
    """Return the fitted parameters: entries of hardware.json with a prior range, and the cost of an image."""
    data = json.loads(HARDWARE.read_text(encoding="utf-8"))
    groups = [("", data["common"]), *data["generations"].items()]
    found = [
        Parameter(name, generation, *entry["prior"])
        for generation, entries in groups
        for name, entry in entries.items()
        if isinstance(entry, dict) and "prior" in entry
    ]
    return (*found, Parameter("image_seconds", "", 3e-3, 0.3e-3))


@dataclass(frozen=True)
class Value:
    """Published step time of a point on a generation."""

    point: str
    family: str
    generation: str
    is_fitted: bool
    seconds: float

    @property
    def job(self) -> Job:
        """What was trained."""
        return Job(**_points()[self.point]["job"])


@functools.cache
def _points() -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in points()}


@functools.cache
def values() -> tuple[Value, ...]:
    """Return all published step times."""
    found = []
    for each in points():
        seconds = each.get("seconds") or {
            generation: _flops(each["id"]) / rate for generation, rate in each["rate"].items()
        }
        found += [
            Value(each["id"], each["family"], generation, each["half"] == "fit", time)
            for generation, time in seconds.items()
        ]
    return tuple(found)


def _flops(point: str) -> float:
    return _at_depth(point, [steps(point, layers).flops for layers in DEPTHS])


def _at_depth(point: str, found: Sequence[float]) -> float:
    """Return a quantity of a model from those of two depths."""
    shallow, deep = found
    layers = MODELS[_points()[point]["model"]].layers
    return shallow + (layers - DEPTHS[0]) * (deep - shallow) / (DEPTHS[1] - DEPTHS[0])


@functools.cache
def steps(point: str, layers: int) -> StepRecording:
    """Return a recorded step of a point, with the collectives of its stage of ZeRO."""
    data = json.loads(gzip.decompress(path(_points()[point], layers).read_bytes()))
    step = encoding.from_json(data)
    job = Job(**_points()[point]["job"])
    if not job.zero:
        return step
    recording = Recording(("",), 0, job.cards, job.cards, precision="bf16-true", steps=[step])
    recording.parameters, recording.trainable = data["parameters"], data["trainable"]
    recording.largest_module = data["largest_module"]
    stage = zero.from_config({"zero_optimization": {"stage": job.zero, **_ZERO}}, "deepspeed")
    return zero.apply(recording, f"deepspeed_stage_{job.zero}", stage).steady


@dataclass(frozen=True)
class Effects:
    """Effects of the model, each of which an ablation leaves out."""

    host: bool = True
    overlap: bool = True
    fusion: bool = True
    vector: bool = True
    padding: bool = True
    loader: bool = True
    waiting: bool = True


def predict(value: Value, settings: Mapping[tuple[str, str], float], effects: Effects = Effects()) -> float:
    """Return the predicted seconds of a point with values of the parameters."""
    device = device_of(value.generation, settings)
    job = value.job
    if not effects.host:
        device = replace(device, trace_seconds=0.0, launch_seconds=0.0, graph_seconds=0.0, sync_seconds=0.0)
    if not effects.overlap:
        device = replace(device, engine_overlap=0.0)
    if not effects.vector:
        device = replace(device, vector_instructions=0.0)
    found = []
    for layers in DEPTHS:
        step = steps(value.point, layers)
        if not effects.padding:
            step = _unpadded(value.point, layers)
        if not effects.waiting:
            step = _unwaited(value.point, layers)
        found.append(timeline(step, device, 8, mode=job.mode, float8=job.float8, fuse=effects.fusion).seconds)
    seconds = _at_depth(value.point, found)
    prepared = loader(value, settings) if effects.loader else (0.0, 0.0)
    return max(seconds + prepared[0], prepared[1])


def loader(value: Value, settings: Mapping[tuple[str, str], float]) -> tuple[float, float]:
    """Return the seconds in which the host prepares a step's samples: in the process that trains, and in workers."""
    point = _points()[value.point]
    factor = settings.get(("host_factor", value.generation), 1.0)
    if point.get("loader") == "image":
        return 0.0, settings["image_seconds", ""] * factor * value.job.batch / point["workers"]
    return point.get("loader_seconds", 0.0) * factor * value.job.batch, 0.0


@functools.cache
def _unpadded(point: str, layers: int) -> StepRecording:
    step = steps(point, layers)
    return replace(step, operations=[replace(each, matmul=None) for each in step.operations])


@functools.cache
def _unwaited(point: str, layers: int) -> StepRecording:
    step = steps(point, layers)
    return replace(step, operations=[replace(each, waits_for=()) for each in step.operations])


def device_of(generation: str, settings: Mapping[tuple[str, str], float]) -> Hardware:
    """Return a device with values of the parameters."""
    own = {name: (found, found) for (name, of), found in settings.items() if of in {"", generation}}
    return from_ranges(generation, "middle", own)


def fit(
    chosen: Iterable[Value],
    start: Sequence[float] | None = None,
    effects: Effects = Effects(),
    fitted: Callable[[Parameter], bool] = lambda parameter: True,
) -> dict[tuple[str, str], float]:
    """Return the parameters that fit some published values best, each pulled to the middle of its prior range."""
    known = tuple(chosen)
    free = [each for each in parameters() if fitted(each)]

    def settings(numbers: Sequence[float]) -> dict[tuple[str, str], float]:
        fixed = {(each.name, each.generation): each.decode(each.middle) for each in parameters()}
        return fixed | {
            (each.name, each.generation): each.decode(number) for each, number in zip(free, numbers, strict=True)
        }

    def residuals(numbers: Sequence[float]) -> list[float]:
        tried = settings(numbers)
        # An error of 12 % counts as one standard deviation of a prior.
        errors = [math.log(predict(each, tried, effects) / each.seconds) / 0.12 for each in known]
        priors = [(number - each.middle) / each.spread for each, number in zip(free, numbers, strict=True)]
        return [*errors, *priors]

    first = np.array(start if start is not None else [each.middle for each in free])
    bounds = [sorted((each.encode(each.slow), each.encode(each.fast))) for each in free]
    low, high = (np.array(each) for each in zip(*bounds, strict=True))
    found = least_squares(
        residuals, np.clip(first, low + 1e-9, high - 1e-9), bounds=(low, high), loss="soft_l1", diff_step=1e-3,
        xtol=1e-3, ftol=1e-3, x_scale=(high - low) / 4,
    )  # fmt: skip
    return settings(found.x)


def encode(settings: Mapping[tuple[str, str], float]) -> list[float]:
    """Return settings as the start of a fit."""
    return [each.encode(settings[each.name, each.generation]) for each in parameters()]


def leave_one_family_out(start: Mapping[tuple[str, str], float]) -> dict[Value, float]:
    """Return the prediction of each value by parameters that were fitted on the half of all other families."""
    found = {}
    for family, group in itertools.groupby(sorted(values(), key=lambda each: each.family), lambda each: each.family):
        others = [each for each in values() if each.is_fitted and each.family != family]
        settings = fit(others, encode(start))
        found |= {each: predict(each, settings) for each in group}
    return found


def main() -> None:
    """Fit, cross-validate, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write hardware.json and the record")
    parser.parse_args()
    settings = fit(each for each in values() if each.is_fitted)
    for (name, generation), found in settings.items():
        print(f"{name} {generation}: {found:.4g}")
    for each in values():
        print(each.point, each.family, each.generation, f"{predict(each, settings) / each.seconds - 1:+.0%}")
    print(statistics.median(abs(predict(each, settings) / each.seconds - 1) for each in values()))


if __name__ == "__main__":
    main()
