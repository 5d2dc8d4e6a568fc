"""Correlation of device events with the operators that launched them.

Kineto gives each operator call an "External id". Three links lead to it: the device event has the same id, it has the
"correlation" id of a launch on the host that has it, or a flow event leads from the operator to the device event. The
bridge writes flow events if PT_TB_ENABLE_FLOW_EVENTS is set. In lazy mode the device runs graphs, and a trace may have
none of these links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpu_profiler.trace.call_stack import group_by_thread, innermost_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hpu_profiler.trace.model import DeviceEvent, Operator

_JsonEvent = dict[str, Any]
# Process id and thread id of an event, and with its time.
_Track = tuple[Any, Any]
_Point = tuple[Any, Any, float]


class Correlation:
    """Links of a trace, collected event by event."""

    def __init__(self) -> None:
        self._device_events: list[tuple[DeviceEvent, int, Any]] = []
        self._launches: dict[Any, int] = {}
        self._flow_sources: dict[Any, _Point] = {}
        self._flow_targets: list[tuple[Any, _Point]] = []

    def add_device_event(self, event: DeviceEvent, arguments: _JsonEvent) -> None:
        """Add a device event with the arguments that it has in the trace."""
        number, correlation = external_id(arguments), arguments.get("correlation")
        if number or correlation is not None:
            self._device_events.append((event, number, correlation))

    def add_launch(self, event: _JsonEvent) -> bool:
        """Add a host event if it is a launch; return whether it is."""
        arguments = event.get("args") or {}
        if "correlation" not in arguments:
            return False
        self._launches[arguments["correlation"]] = external_id(arguments)
        return True

    def add_flow(self, event: _JsonEvent) -> None:
        """Add the start or the end of a flow."""
        # torch also writes flows from the forward to the backward pass. Kineto's flows repeat its correlation ids.
        category = event.get("cat")
        if category == "fwdbwd" or (category == "ac2g" and event.get("id") in self._launches):
            return
        if event["ph"] == "s":
            self._flow_sources[event.get("id")] = _point(event)
        else:
            self._flow_targets.append((event.get("id"), _point(event)))

    def link(self, operators: Sequence[Operator], tracks: Mapping[_Track, Iterable[DeviceEvent]]) -> None:
        """Set the operator of each device event that has a link to it."""
        by_external_id = {operator.external_id: operator for operator in operators if operator.external_id}
        for event, number, correlation in self._device_events:
            event.operator = by_external_id.get(number or self._launches.get(correlation, 0))
        if not self._flow_targets:
            return
        flows = {
            target: self._flow_sources[number] for number, target in self._flow_targets if number in self._flow_sources
        }
        by_flow: dict[Any, list[tuple[float, DeviceEvent]]] = {}
        for track, events in tracks.items():
            for event in events:
                source = flows.get((*track, event.start))
                if event.operator is None and source is not None:
                    by_flow.setdefault(source[1], []).append((source[2], event))
        threads = group_by_thread(operators)
        for thread, sources in by_flow.items():
            sources.sort(key=lambda pair: pair[0])
            launchers = innermost_spans(threads.get(thread, []), (time for time, _ in sources))
            for operator, (_, event) in zip(launchers, sources, strict=True):
                event.operator = operator


def external_id(arguments: dict[str, Any]) -> int:
    """Return Kineto's id of an operator call from the arguments of an event; 0 if there is none."""
    return int(arguments.get("External id", arguments.get("external id", 0)) or 0)


def _point(event: _JsonEvent) -> _Point:
    return event.get("pid"), event.get("tid", 0), float(event["ts"])
