"""What HPUProfiler takes: checked when it is made, and handed to torch when recording begins."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

import torch.profiler

from hpu_profiler import _activities, _plan
from hpu_profiler._lightning import rank_zero_warn
from hpu_profiler._summary import SORT_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

# Beside what torch's profiler takes: PyTorchProfiler's own, and what only the bridge's profiler up to 1.19 knows.
_KNOWN: Final = frozenset({"export_to_flame_graph", "metric", "debug_activities"})
# Not handed on as they are.
_OWN_AFFAIR: Final = frozenset({"schedule", "on_trace_ready", "activities"})


def check(sort_by_key: str | None, max_steps_per_trace: int, max_traces: int, profiler_kwargs: dict[str, Any]) -> None:
    """Refuse what cannot work, while whoever wrote it is watching.

    Raises:
        ValueError: `sort_by_key` is no key, a number is not positive, or flame graphs are asked for without stacks.
        TypeError: An argument is unknown, or the schedule is none.
    """
    if sort_by_key is not None and sort_by_key not in SORT_KEYS:
        raise ValueError(f"`sort_by_key` must be one of {sorted(SORT_KEYS)}, got {sort_by_key!r}")
    for name, value in (("max_steps_per_trace", max_steps_per_trace), ("max_traces", max_traces)):
        if value < 1:
            raise ValueError(f"`{name}` must be a positive int, got {value!r}")
    unknown = set(profiler_kwargs) - _KNOWN - set(inspect.signature(torch.profiler.profile.__init__).parameters)
    if unknown:
        raise TypeError(
            f"HPUProfiler and torch.profiler.profile of torch {torch.__version__} take no {sorted(unknown)}"
        )
    if profiler_kwargs.get("export_to_flame_graph") and not profiler_kwargs.get("with_stack"):
        raise ValueError("`export_to_flame_graph=True` needs `with_stack=True`: without, torch records no stacks")
    _plan.check_schedule(profiler_kwargs.get("schedule"))


def for_torch(arguments: Mapping[str, Any], *, on_card: bool) -> dict[str, Any]:
    """Return the arguments for the profiler that torch has now.

    Args:
        arguments: What HPUProfiler was given for it.
        on_card: Whether the training runs on a card.
    """
    taken = inspect.signature(torch.profiler.profile.__init__).parameters
    options = {name: value for name, value in arguments.items() if name in taken and name not in _OWN_AFFAIR}
    names = _activities.names_of(arguments.get("activities"), on_card=on_card)
    options["activities"], unknown = _activities.look_up(names)
    if arguments.get("export_to_flame_graph") and "experimental_config" in taken:
        # Without it torch keeps stacks for the trace and leaves them out of what `export_stacks` writes.
        verbose = torch._C._profiler._ExperimentalConfig(verbose=True)  # noqa: SLF001 - torch documents no other way
        options.setdefault("experimental_config", verbose)
    for name in unknown:
        rank_zero_warn(
            f"HPUProfiler records no {name} activity: torch {torch.__version__} has no name for it, and the bridge "
            "brought none."
        )
    return options
