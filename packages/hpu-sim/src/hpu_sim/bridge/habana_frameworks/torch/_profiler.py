"""Let torch's profilers be asked for hpu activity.

Stock torch has the name but no support: with ``torch.hpu`` registered it fails an assertion. The simulated card's work
is the CPU's and appears in a trace as such, so the request is taken back before torch sees it; the exported file names
the card, says that it is simulated, and holds no kernels.
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

from hpu_sim.activation import active_config

if TYPE_CHECKING:
    from collections.abc import Callable

_LANE: Final = "/device:HPU:0"
# Beside the processes of the host, which are numbered by the system.
_LANE_ID: Final = 0


def accept_hpu() -> None:
    """Change torch's profiler classes in place, so that whoever holds them already has the change."""
    _replace(autograd_profiler.profile, "__init__", _without_device)
    _replace(torch_profiler._KinetoProfile, "export_chrome_trace", _with_card)  # noqa: SLF001 - what exports for both of torch's classes


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


def _with_card(stock: Callable[..., Any]) -> Callable[..., Any]:
    def export_chrome_trace(self: Any, path: str, *arguments: Any, **options: Any) -> Any:
        result = stock(self, path, *arguments, **options)
        if wants_hpu(self):
            _add_card(Path(path))
        return result

    return export_chrome_trace


def wants_hpu(profile: Any) -> bool:
    """Return whether a profile of torch's was asked for hpu activity."""
    hpu = getattr(torch.profiler.ProfilerActivity, "HPU", None)
    return bool(getattr(profile, "records_hpu", False)) or (hpu is not None and hpu in profile.activities)


def _add_card(path: Path) -> None:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    config = active_config()
    trace.setdefault("deviceProperties", []).append(
        {"name": config.generation, "totalGlobalMem": config.memory_bytes, "simulated": True}
    )
    described = {
        "process_name": {"name": _LANE},
        "process_labels": {"labels": "simulated: the CPU's operators are the card's"},
        "process_sort_index": {"sort_index": _LANE_ID},
    }
    trace["traceEvents"] += [
        {"ph": "M", "name": name, "pid": _LANE_ID, "tid": 0, "ts": 0, "args": arguments}
        for name, arguments in described.items()
    ]
    with opened(path, "wt", encoding="utf-8") as file:
        json.dump(trace, file)
