"""Let torch's profilers be asked for hpu activity.

Stock torch has the name but no support: with ``torch.hpu`` registered it fails an assertion. So the request is taken
back before torch sees it, and what the simulated card did meanwhile, which the device itself measures, is added to the
exported file. As on the bridge, torch's own list of events has none of it.
"""

from __future__ import annotations

import functools
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.autograd import profiler as autograd_profiler
from torch.profiler import profiler as torch_profiler

from habana_frameworks.torch import _chrome_trace
from hpu_sim.runtime import active_config, native

if TYPE_CHECKING:
    from collections.abc import Callable

#: What a profile keeps of the card, as an attribute of it.
_RECORDED: Final = "hpu_sim_intervals"


def accept_hpu() -> None:
    """Change torch's profiler classes in place, so that whoever holds them already has the change."""
    _replace(autograd_profiler.profile, "__init__", _without_device)
    kineto_profile = torch_profiler._KinetoProfile  # noqa: SLF001 - the base of both of torch's classes
    _replace(kineto_profile, "start_trace", _recording)
    _replace(kineto_profile, "stop_trace", _recorded)
    _replace(kineto_profile, "export_chrome_trace", _with_card)


def _replace(cls: type, name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    stock = getattr(cls, name)
    setattr(cls, name, functools.wraps(stock)(change(stock)))


def _without_device(stock: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, *arguments: Any, **options: Any) -> None:  # noqa: N807 - it replaces one
        if options.get("use_device") == "hpu":
            # Where nothing but the card was asked for, the CPU's operators are the card's.
            options.update(use_device=None, use_cpu=True)
        stock(self, *arguments, **options)

    return __init__


def _recording(stock: Callable[..., Any]) -> Callable[..., Any]:
    def start_trace(self: Any) -> Any:
        if wants_hpu(self):
            native().start_device_trace()
        return stock(self)

    return start_trace


def _recorded(stock: Callable[..., Any]) -> Callable[..., Any]:
    def stop_trace(self: Any) -> Any:
        if wants_hpu(self):
            setattr(self, _RECORDED, native().take_device_trace())
        return stock(self)

    return stop_trace


def _with_card(stock: Callable[..., Any]) -> Callable[..., Any]:
    def export_chrome_trace(self: Any, path: str, *arguments: Any, **options: Any) -> Any:
        result = stock(self, path, *arguments, **options)
        if wants_hpu(self):
            _add_card(Path(path), *getattr(self, _RECORDED, ([], 0)))
        return result

    return export_chrome_trace


def wants_hpu(profile: Any) -> bool:
    """Return whether a profile of torch's was asked for hpu activity."""
    hpu = getattr(torch.profiler.ProfilerActivity, "HPU", None)
    return bool(getattr(profile, "records_hpu", False)) or (hpu is not None and hpu in profile.activities)


def _add_card(path: Path, intervals: list[_chrome_trace.Interval], dropped: int) -> None:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    config = active_config()
    card: dict[str, Any] = {"name": config.generation, "totalGlobalMem": config.memory_bytes, "simulated": True}
    if dropped:
        card["droppedEvents"] = dropped
    trace.setdefault("deviceProperties", []).append(card)
    trace["traceEvents"] += _chrome_trace.events_of(intervals, trace)
    with opened(path, "wt", encoding="utf-8") as file:
        json.dump(trace, file)
