"""What a reader should look at first, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hpu_profiler.report.model import CAUSES, Finding
from hpu_profiler.units import in_percent, in_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpu_profiler.report.model import Analysis, Cause

#: Shares of a step below which nothing is worth a word.
_WORTH: Final = 0.05

_ADVICE: Final[dict[Cause, str]] = {
    "compilation": "Graphs are compiled while steps run. Keep shapes the same from batch to batch (pad them, "
    "`drop_last=True`), and begin recording later where these are the first graphs of a run.",
    "data loading": "The card waits for batches. Give the DataLoader more workers, or do less in the dataset.",
    "host sync": "The host waits for a value of the card, and gives it no new work meanwhile. Look for `.item()`, "
    "`print(loss)` and `if tensor:` in the training step; log every so many steps.",
    "other host work": "The host takes longer to launch work than the card to do it. Use larger batches, "
    "`torch.compile` in eager mode, or fewer and larger operators.",
}


def find(analyses: Sequence[Analysis], slowest: Analysis | None) -> tuple[Finding, ...]:
    """Return what is worth a word, the gravest first.

    Args:
        analyses: Of all traces.
        slowest: The rank that the others wait for, if there is one.
    """
    with_card = [each for each in analyses if each.has_card and each.window]
    found = [finding for cause in CAUSES if (finding := _idle(with_card, cause)) is not None]
    # Where one rank is slow, what the others spend in collectives is the wait for it.
    found += [finding] if (finding := _exposed([slowest] if slowest else with_card)) is not None else []
    if slowest is not None:
        found.append(_slowest(slowest, [each for each in analyses if each is not slowest and each.steps]))
    found += [finding for each in analyses if (finding := _compiled_again(each)) is not None]
    return tuple(sorted(found, key=lambda each: -each.weight))


def _slowest(slowest: Analysis, others: Sequence[Analysis]) -> Finding:
    """Return what is to say of the rank that the others wait for, and of what it has more than the quickest of them."""
    quickest = min(others, key=lambda each: each.own_time)
    gap = slowest.own_time - quickest.own_time
    more: dict[str, float] = {
        cause: slowest.idle.get(cause, 0.0) / slowest.steps - quickest.idle.get(cause, 0.0) / quickest.steps
        for cause in CAUSES
    }
    more["work of the card"] = _computing(slowest) - _computing(quickest)
    most = max(more, key=lambda what: more[what])
    place = _place(slowest) if most == CAUSES[-1] else ""
    where = f", most of it in `{place}`" if place else ""
    return Finding(
        f"{slowest.name.capitalize()} is the slowest, by {in_time(gap)} a step",
        f"The others wait for it in collectives. What it has more of than {quickest.name} is {most}, "
        f"{in_time(more[most])} a step{where}.",
        gap / slowest.step_time,
    )


def _computing(analysis: Analysis) -> float:
    """Return how long the card worked in a step without waiting for others."""
    return (analysis.busy - analysis.exposed) / analysis.steps


def _place(analysis: Analysis) -> str:
    """Return the name of what takes most of the time that has no cause of its own; empty where nothing takes half."""
    if not analysis.marks:
        return ""
    name, time = analysis.marks[0]
    return name if time > analysis.idle[CAUSES[-1]] / 2 else ""


def _idle(analyses: Sequence[Analysis], cause: Cause) -> Finding | None:
    """Return what is to say of a cause, by the trace in which it weighs most."""
    if not analyses:
        return None
    worst = max(analyses, key=lambda each: each.idle.get(cause, 0.0) / each.window)
    share = worst.idle.get(cause, 0.0) / worst.window
    if share < _WORTH:
        return None
    where = f" ({worst.name})" if len(analyses) > 1 else ""
    title = f"The card is idle for {in_percent(share)} of the time because of {cause}{where}"
    place = _place(worst) if cause == CAUSES[-1] else ""
    # A place to look at is worth more than general advice.
    advice = f"Most of that is in `{place}`, during which the card has no work." if place else _ADVICE[cause]
    return Finding(title, advice, share)


def _exposed(analyses: Sequence[Analysis]) -> Finding | None:
    """Return what is to say of collectives, by the trace in which they weigh most."""
    if not analyses:
        return None
    worst = max(analyses, key=lambda each: each.exposed / each.window)
    share = worst.exposed / worst.window
    if share < _WORTH:
        return None
    return Finding(
        f"Collectives take {in_percent(share)} of the time with nothing computed meanwhile ({worst.name})",
        "Larger gradient buckets, gradient accumulation or a larger batch for each card make more of them overlap; "
        "where one rank is slow, it is the wait for that one.",
        share,
    )


def _compiled_again(analysis: Analysis) -> Finding | None:
    if not analysis.compilations.again:
        return None
    number = analysis.compilations.again
    return Finding(
        f"{number} graph{'s were' if number > 1 else ' was'} compiled again for new shapes ({analysis.name})",
        _ADVICE["compilation"],
        analysis.compilations.time / analysis.window if analysis.window else 0.0,
    )
