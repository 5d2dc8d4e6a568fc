"""Fit of the planner's model of time to published training speeds, and its cross-validation."""

from __future__ import annotations

import functools
import gzip
import json
import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import encoding
import numpy as np
from programs import DEPTHS, MODELS, Job
from record import FOLDER, path, points
from scipy.optimize import least_squares

from hpu_sim.prediction import zero
from hpu_sim.prediction.fusion import segments
from hpu_sim.prediction.hardware import ENDS, from_ranges, ranges, shift
from hpu_sim.prediction.ranges import Range, quadrature
from hpu_sim.prediction.recording import Recording, StepRecording
from hpu_sim.prediction.time_model import step_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hpu_sim.prediction.fusion import Segment

    #: Values of parameters by name and generation.
    Settings = Mapping[tuple[str, str], float]

HARDWARE: Final = FOLDER.parents[1] / "src/hpu_sim/data/hardware.json"
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

    def ends(self, value: float, deviation: float) -> tuple[float, float]:
        """Return the value moved by a deviation to the slow and to the fast end of 80 % of the probability."""
        step = math.copysign(ENDS * deviation, self.fast - self.slow)
        prior = self.slow, self.fast
        return shift(value, -step, prior), shift(value, step, prior)

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
def steps(point: str, layers: int, *, timer: bool = True) -> StepRecording:
    """Return a recorded step of a point, with what its stage of ZeRO adds."""
    data = json.loads(gzip.decompress(path(_points()[point], layers).read_bytes()))
    step = encoding.from_json(data)
    job = Job(**_points()[point]["job"])
    if not job.zero:
        return step
    recording = Recording(("",), 0, job.cards, job.cards, precision="bf16-true", steps=[step])
    recording.parameters, recording.trainable = data["parameters"], data["trainable"]
    recording.largest_module = data["largest_module"]
    timers = {"throughput": {"synchronized": timer}}
    stage = zero.from_config({"zero_optimization": {"stage": job.zero, **_ZERO}, "timers": timers}, "deepspeed")
    return zero.apply(recording, f"deepspeed_stage_{job.zero}", stage).steady


@dataclass(frozen=True)
class Effects:
    """Effects of the model, each of which an ablation leaves out.

    Attributes:
        host: Host time of tracing, launches and reads.
        loader: Preparation of images by the host.
        vector: Instructions of the vector engines.
        overlap: Vector work beside products.
        padding: Padding of products to the matrix engine.
        fusion: Fusion of element-wise operators.
        reductions: End of a fused chain at reductions that leave the chip.
        waiting: Waits for the results of collectives.
        starts: Starts of graphs on the device.
        timer: Waits of DeepSpeed's throughput timer for the device.
    """

    host: bool = True
    loader: bool = True
    vector: bool = True
    overlap: bool = True
    padding: bool = True
    fusion: bool = True
    reductions: bool = True
    waiting: bool = True
    starts: bool = True
    timer: bool = True


EVERY_EFFECT: Final = Effects()
# Effects without which a step is another one.
_SHAPING: Final = ("fusion", "padding", "waiting", "timer")


def predict(
    value: Value, settings: Settings, effects: Effects = EVERY_EFFECT, moved: Mapping[str, float] | None = None
) -> float:
    """Return the predicted seconds of a point.

    Args:
        value: The point on a generation.
        settings: Values of the parameters.
        effects: Effects of the model that are on.
        moved: Figures of the hardware that are not fitted, away from the middle of their ranges.
    """
    job, generation = value.job, value.generation
    chosen = {each.name: settings[each.name, each.generation] for each in _parameters_of(generation)} | dict(
        moved or {}
    )
    device = from_ranges(generation, "middle", {name: (number, number) for name, number in chosen.items()})
    if not effects.host:
        device = replace(device, trace_seconds=0.0, launch_seconds=0.0, graph_seconds=0.0, sync_seconds=0.0)
    if not effects.overlap:
        device = replace(device, engine_overlap=0.0)
    if not effects.vector:
        device = replace(device, vector_instructions=0.0)
    if not effects.starts:
        device = replace(device, start_seconds=0.0)
    if not effects.reductions:
        device = replace(device, sram_bytes=1 << 62)
    found = []
    for layers in DEPTHS:
        # Only what changes a step, so that the others share it.
        shaping = replace(EVERY_EFFECT, **{name: getattr(effects, name) for name in _SHAPING})
        step, parts = _launched(value.point, layers, device.sram_bytes, shaping)
        found.append(step_seconds(step, device, 8, mode=job.mode, float8=job.float8, parts=parts))
    total = _at_depth(value.point, found)
    prepared = loader(value, settings) if effects.loader else (0.0, 0.0)
    return max(total + prepared[0], prepared[1])


def _parameters_of(generation: str) -> list[Parameter]:
    return [each for each in parameters() if each.generation in {"", generation}]


def loader(value: Value, settings: Settings) -> tuple[float, float]:
    """Return the seconds in which the host prepares a step's samples: in the process that trains, and in workers."""
    point = _points()[value.point]
    factor = settings.get(("host_factor", value.generation), 1.0)
    if point.get("loader") == "image":
        return 0.0, settings["image_seconds", ""] * factor * value.job.batch / point["workers"]
    return point.get("loader_seconds", 0.0) * factor * value.job.batch, 0.0


@functools.cache
def _launched(point: str, layers: int, sram: int, effects: Effects) -> tuple[StepRecording, tuple[Segment, ...]]:
    """Return a step with some effects, and its segments."""
    step = steps(point, layers, timer=effects.timer)
    if not effects.padding:
        step = replace(step, operations=[replace(each, matmul=None) for each in step.operations])
    if not effects.waiting:
        step = replace(step, operations=[replace(each, waits_for=()) for each in step.operations])
    mode = Job(**_points()[point]["job"]).mode
    return step, segments(step, fuse=effects.fusion and mode != "eager", by_phase=mode == "compile", sram=sram)


@dataclass(frozen=True)
class Fit:
    """Fitted parameters.

    Attributes:
        settings: Values.
        deviations: Standard deviation of each independent error of each parameter on the scale of the fit: the rows of
            the Cholesky factor of the covariance, by the curvature at the values.
    """

    settings: Settings
    deviations: Mapping[tuple[str, str], Sequence[float]]

    def ends(self, parameter: Parameter) -> tuple[float, float]:
        """Return slow and fast end of a parameter's range."""
        key = parameter.name, parameter.generation
        return parameter.ends(self.settings[key], math.hypot(*self.deviations[key]))

    def moves(self) -> Iterator[tuple[str, tuple[Settings, Settings]]]:
        """Yield the name of each independent error, and the settings at its slow and at its fast end."""
        free = [each for each in parameters() if self.deviations[each.name, each.generation]]
        for column, of in enumerate(free):
            slow, fast = dict(self.settings), dict(self.settings)
            for each in free[column:]:
                key = each.name, each.generation
                step = math.copysign(ENDS, of.slow - of.fast) * self.deviations[key][column]
                slow[key], fast[key] = (shift(self.settings[key], by, (each.slow, each.fast)) for by in (step, -step))
            yield f"{of.name} {of.generation}", (slow, fast)


def fit(
    chosen: Iterable[Value],
    start: Sequence[float] | None = None,
    effects: Effects = EVERY_EFFECT,
) -> Fit:
    """Return the parameters that fit some published values best, each pulled to the middle of its prior range."""
    known = tuple(chosen)
    free = parameters()

    def settings(numbers: Sequence[float]) -> dict[tuple[str, str], float]:
        return {(each.name, each.generation): each.decode(number) for each, number in zip(free, numbers, strict=True)}

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
        xtol=1e-3, ftol=1e-3, x_scale=(high - low) / 4, max_nfev=12,
    )  # fmt: skip
    # The range of the host is in what a host's operator costs, and not in the factor between hosts, which would count
    # it twice.
    moving = [index for index, each in enumerate(free) if each.name != "host_factor"]
    covariance = np.linalg.inv((found.jac.T @ found.jac)[np.ix_(moving, moving)])
    factor = np.linalg.cholesky(covariance)
    rows = {index: factor[row, : row + 1].tolist() for row, index in enumerate(moving)}
    deviations = {(each.name, each.generation): rows.get(index, ()) for index, each in enumerate(free)}
    return Fit(settings(found.x), deviations)


def encode(settings: Settings) -> list[float]:
    """Return settings as the start of a fit."""
    return [each.encode(settings[each.name, each.generation]) for each in parameters()]


@dataclass(frozen=True)
class Judged:
    """Published value and the prediction by parameters that were fitted without its family."""

    value: Value
    predicted: Range

    @property
    def error(self) -> float:
        """Relative error of the middle."""
        return self.predicted.middle / self.value.seconds - 1

    @property
    def is_inside(self) -> bool:
        """Whether the range holds the truth."""
        return self.predicted.low <= self.value.seconds <= self.predicted.high

    @property
    def width(self) -> float:
        """High end divided by the low one."""
        return self.predicted.high / self.predicted.low


def fit_without_each_family(whole: Fit) -> dict[str, Fit]:
    """Return the parameters by the family that was left out of their fit."""
    families = sorted({each.family for each in values()})
    fitted = [each for each in values() if each.is_fitted]
    halves = {family: [each for each in fitted if each.family != family] for family in families}
    # A family of which no point is in the declared half does not change the fit.
    return {name: whole if half == fitted else fit(half, encode(whole.settings)) for name, half in halves.items()}


def range_of(numbers: Sequence[Value], found: Fit, unexplained: float) -> Range:
    """Return the range of a point's seconds, or of the ratio of two points, as :mod:`hpu_sim.prediction.ranges` does.

    Args:
        numbers: The point, or dividend and divisor.
        found: Fitted parameters.
        unexplained: Logarithm of the factor beyond the parameters.
    """
    settings = found.settings

    def number(changed: Settings, moved: Mapping[str, float] | None = None) -> float:
        first, *others = (predict(each, changed, moved=moved) for each in numbers)
        return first / others[0] if others else first

    ends = {name: tuple(map(number, both)) for name, both in found.moves()}
    fitted = {each.name for each in parameters()}
    for name, bounds in ranges(numbers[0].generation).items():
        if name not in fitted:
            ends[name] = tuple(number(settings, {name: end}) for end in bounds)
    return quadrature(number(settings), ends, unexplained)


def judge(folds: Mapping[str, Fit], residuals: Mapping[str, float]) -> list[Judged]:
    """Return all values with their predictions by the parameters of the other families."""
    return [
        Judged(each, range_of([each], folds[each.family], math.log(residuals[each.generation]))) for each in values()
    ]


def is_known(value: Value) -> bool:
    """Return whether all of the host's preparation of a sample is known."""
    return _points()[value.point].get("loader") not in {"audio", "features"}


def holds(found: Range, truth: float, residual: float) -> bool:
    """Return whether a range, widened by a factor that its figures do not explain, holds the truth."""
    error, unexplained = math.log(truth / found.middle), math.log(residual)
    end = found.high if error > 0 else found.low
    return abs(error) <= math.hypot(math.log(end / found.middle), unexplained)


def choose_residual(groups: Iterable[Sequence[tuple[Range, float]]]) -> float:
    """Return the smallest factor with which ranges hold the goal's share of the truths in each group."""
    chosen = [each for each in groups if each]
    for percent in range(100):
        residual = 1 + percent / 100
        if all(statistics.mean(holds(*each, residual) for each in group) >= COVERAGE for group in chosen):
            return residual
    raise ValueError("no factor below 2 makes the ranges hold the goal's share")


def residuals_of(folds: Mapping[str, Fit]) -> dict[str, float]:
    """Return the factor of each generation, with which the ranges of its known values hold the goal's share.

    GAUDI2 and GAUDI3 have one, as the same software was measured on both. It is enough for each of them, and for their
    values that are not in the fitted half.
    """
    judged = [each for each in judge(folds, dict.fromkeys(GENERATIONS, 1.0)) if is_known(each.value)]
    found = {}
    for group in (("GAUDI",), ("GAUDI2", "GAUDI3")):
        of_group = [each for each in judged if each.value.generation in group]
        parts = [[each for each in of_group if each.value.generation == generation] for generation in group]
        parts.append([each for each in of_group if not each.value.is_fitted])
        residual = choose_residual([[(each.predicted, each.value.seconds) for each in part] for part in parts])
        found.update(dict.fromkeys(group, residual))
    return found


def summary(judged: Sequence[Judged]) -> dict[str, float]:
    """Return the figures of the headline."""
    errors = sorted(abs(each.error) for each in judged)
    return {
        "values": len(errors),
        "median": statistics.median(errors),
        "p90": errors[math.ceil(0.9 * len(errors)) - 1],
        "worst": errors[-1],
        "inside": statistics.mean(each.is_inside for each in judged),
        "width": statistics.median(each.width for each in judged),
        "narrow": statistics.mean(each.is_inside and each.width <= WIDTH for each in judged),
    }
