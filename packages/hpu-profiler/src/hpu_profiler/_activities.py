"""What torch is asked to record, by the names that it has for it at the time.

Up to SynapseAI 1.19 the bridge puts an enum of its own in the place of `torch.profiler.ProfilerActivity`, when it is
imported; after that it uses torch's. Code that imported the name earlier holds another enum than the profiler expects.
So activities are taken by name, and looked up when recording begins: it does not matter who was imported first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch.profiler

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VARIABLE: Final = "HABANA_PROFILE"
_USABLE: Final = "profile_api_light"
_CARD: Final = "HPU"


def names_of(activities: Iterable[Any] | None, *, on_card: bool) -> list[str]:
    """Return the names of what is to be recorded.

    Args:
        activities: As torch's profiler takes them; None for the CPU, and the card where there is one.
        on_card: Whether the training runs on a card.
    """
    if activities is None:
        return ["CPU", _CARD] if on_card else ["CPU"]
    names = [str(activity.name) for activity in activities]
    # Where nothing runs on a card there is nothing of one to record, and torch would warn or fail.
    return names if on_card else [name for name in names if name != _CARD] or ["CPU"]


def look_up(names: Iterable[str]) -> tuple[list[Any], list[str]]:
    """Return the members of the enum that torch has now, and the names that it has not."""
    enum = torch.profiler.ProfilerActivity
    found = [getattr(enum, name) for name in names if hasattr(enum, name)]
    return found, [name for name in names if not hasattr(enum, name)]


def check_variable(environment: Mapping[str, str]) -> None:
    """Refuse a HABANA_PROFILE that keeps the card's work out of torch's traces.

    The bridge sets the variable itself, to "profile_api_light", where it is unset.

    Raises:
        RuntimeError: It is set to something else.
    """
    value = environment.get(VARIABLE)
    if value not in {None, _USABLE}:
        raise RuntimeError(
            f"{VARIABLE} must be unset or {_USABLE!r} for HPUProfiler to record the card, got {value!r}: it "
            "starts SynapseAI's own profiler, or forbids torch's. Start the program again after `unset "
            f"{VARIABLE}`, or train without HPUProfiler."
        )
