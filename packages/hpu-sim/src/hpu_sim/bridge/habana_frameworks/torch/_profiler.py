"""Support of hpu activity in torch's profilers.

Stock torch has the name of the activity but no support: once ``torch.hpu`` is registered, requesting it fails an
assertion. The patches here withhold the request from torch and add the device's own trace to the exported file. As with
the bridge, torch's list of events has none of it.
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

from habana_frameworks.torch._chrome_trace import TraceWriter
from hpu_sim.device.runtime import active_config, native

if TYPE_CHECKING:
    from collections.abc import Callable

    from habana_frameworks.torch._chrome_trace import DeviceEvent

#: Attribute of a profile that holds the device's trace.
_TRACE_ATTRIBUTE: Final = "hpu_sim_trace"


def patch_profilers() -> None:
    """Patch torch's profiler classes in place, for programs that imported them earlier."""
    _patch(autograd_profiler.profile, "__init__", _drop_hpu)
    kineto_profile = torch_profiler._KinetoProfile  # noqa: SLF001 - base of both of torch's classes
    _patch(kineto_profile, "start_trace", _start_device_trace)
    _patch(kineto_profile, "stop_trace", _stop_device_trace)
    _patch(kineto_profile, "export_chrome_trace", _export_device_trace)


def _patch(cls: type, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(cls, name)
    setattr(cls, name, functools.wraps(original)(wrap(original)))


def _drop_hpu(original: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it replaces one
        if kwargs.get("use_device") == "hpu":
            # A profile of hpu alone still needs the CPU's events, which have the operators.
            kwargs.update(use_device=None, use_cpu=True)
        original(self, *args, **kwargs)

    return __init__


def _start_device_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    def start_trace(self: Any) -> Any:
        if _records_hpu(self):
            native().start_device_trace()
        return original(self)

    return start_trace


def _stop_device_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    def stop_trace(self: Any) -> Any:
        if _records_hpu(self):
            setattr(self, _TRACE_ATTRIBUTE, native().stop_device_trace())
        return original(self)

    return stop_trace


def _export_device_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    def export_chrome_trace(self: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        result = original(self, path, *args, **kwargs)
        if _records_hpu(self):
            _add_device(Path(path), getattr(self, _TRACE_ATTRIBUTE, []))
        return result

    return export_chrome_trace


def _records_hpu(profile: Any) -> bool:
    hpu = getattr(torch.profiler.ProfilerActivity, "HPU", None)
    return bool(getattr(profile, "records_hpu", False)) or (hpu is not None and hpu in profile.activities)


def _add_device(path: Path, events: list[DeviceEvent]) -> None:
    open_file = gzip.open if path.suffix == ".gz" else open
    with open_file(path, "rt", encoding="utf-8") as file:
        trace = json.load(file)
    config = active_config()
    device = {"name": config.generation, "totalGlobalMem": config.memory_bytes, "simulated": True}
    trace.setdefault("deviceProperties", []).append(device)
    # A newer torch exports times relative to this base.
    trace["traceEvents"] += TraceWriter(int(trace.get("baseTimeNanoseconds", 0))).write(events)
    with open_file(path, "wt", encoding="utf-8") as file:
        json.dump(trace, file)
