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
    found += [finding] if (finding := _exposed(with_card)) is not None else []
    if slowest is not None:
        others = [each.own_time for each in analyses if each is not slowest and each.steps]
        gap = slowest.own_time - min(others)
        title = f"{slowest.name.capitalize()} is the slowest, by {in_time(gap)} a step"
        advice = "The others wait for it in collectives. Compare its lanes with theirs: its data, its host, its card."
        found.append(Finding(title, advice, gap / slowest.step_time))
    found += [finding for each in analyses if (finding := _compiled_again(each)) is not None]
    return tuple(sorted(found, key=lambda each: -each.weight))


def _idle(analyses: Sequence[Analysis], cause: Cause) -> Finding | None:
    """Return what is to say of a cause, by the trace in which it weighs most."""
    if not analyses:
        return None
    worst = max(analyses, key=lambda each: each.idle.get(cause, 0.0) / each.window)
    share = worst.idle.get(cause, 0.0) / worst.window
    if share < _WORTH:
        return None
    where = f" ({worst.name})" if len(analyses) > 1 else ""
    return Finding(
        f"The card is idle for {in_percent(share)} of the time because of {cause}{where}", _ADVICE[cause], share
    )


def _exposed(analyses: Sequence[Analysis]) -> Finding | None:
    """Return what is to say of collectives, by the trace in which they weigh most."""
    if not analyses:
        return None
    worst = max(analyses, key=lambda each: (each.collective - each.overlapped) / each.window)
    share = (worst.collective - worst.overlapped) / worst.window
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
