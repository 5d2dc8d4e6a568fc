"""Correlation of device events with the operators that launched them.

Kineto gives each operator call an "External id". Three links lead to it: the device event has the same id, it has the
"correlation" id of a launch on the host that has it, or a flow event leads from the operator to the device event. The
bridge writes flow events if PT_TB_ENABLE_FLOW_EVENTS is set. In lazy mode the device runs graphs, and a trace may have
none of these links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpu_profiler.trace.call_stack import group_by_thread, innermost_operators

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpu_profiler.trace.model import DeviceEvent, Operator

__all__ = ["external_id", "set_operators"]

_JsonEvent = dict[str, Any]
# Process id, thread id and time of an event.
_Point = tuple[Any, Any, float]


def set_operators(
    device_events: Iterable[tuple[DeviceEvent, _JsonEvent]],
    operators: Sequence[Operator],
    json_events: Iterable[_JsonEvent],
) -> None:
    """Set the operator of each device event that has a link to one.

    Args:
        device_events: Device events with the JSON events they were read from.
        operators: Operators of the host.
        json_events: All events of the trace.
    """
    by_external_id = {operator.external_id: operator for operator in operators if operator.external_id}
    launches, flows = _launches_and_flows(json_events)
    by_flow: dict[Any, list[tuple[float, DeviceEvent]]] = {}
    for event, json_event in device_events:
        arguments = json_event.get("args") or {}
        number = external_id(arguments) or launches.get(arguments.get("correlation"), 0)
        event.operator = by_external_id.get(number)
        source = flows.get(_point(json_event))
        if event.operator is None and source is not None:
            by_flow.setdefault(source[1], []).append((source[2], event))
    threads = group_by_thread(operators)
    for thread, sources in by_flow.items():
        sources.sort(key=lambda pair: pair[0])
        launchers = innermost_operators(threads.get(thread, []), (time for time, _ in sources))
        for operator, (_, event) in zip(launchers, sources, strict=True):
            event.operator = operator


def external_id(arguments: dict[str, Any]) -> int:
    """Return Kineto's id of an operator call from the arguments of an event; 0 if there is none."""
    return int(arguments.get("External id", arguments.get("external id", 0)) or 0)


def _launches_and_flows(json_events: Iterable[_JsonEvent]) -> tuple[dict[Any, int], dict[_Point, _Point]]:
    """Return the external id by the correlation id of each launch, and the source by the target of each flow."""
    launches: dict[Any, int] = {}
    sources: dict[Any, _Point] = {}
    targets: list[tuple[Any, _Point]] = []
    for event in json_events:
        phase = event.get("ph")
        if phase == "X":
            arguments = event.get("args") or {}
            number = external_id(arguments)
            if number and "correlation" in arguments:
                launches[arguments["correlation"]] = number
        # torch also writes flows from the forward to the backward pass.
        elif phase in {"s", "f"} and event.get("cat") != "fwdbwd":
            if phase == "s":
                sources[event.get("id")] = _point(event)
            else:
                targets.append((event.get("id"), _point(event)))
    return launches, {target: sources[number] for number, target in targets if number in sources}


def _point(event: _JsonEvent) -> _Point:
    return event["pid"], event["tid"], float(event["ts"])
