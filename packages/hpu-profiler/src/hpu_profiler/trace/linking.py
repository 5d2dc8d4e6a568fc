"""Which operator launched a card's work: by torch's number for it, by the launch itself, or by an arrow.

torch gives each call of an operator an "External id". A card's work repeats it, or the "correlation" of a launch
on the host that has it, or an arrow (flow event) leads from the operator to the work; PT_TB_ENABLE_FLOW_EVENTS makes
the bridge draw those. In lazy mode a card runs graphs, and there may be no such link.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpu_profiler.trace.nesting import by_thread, innermost

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpu_profiler.trace.model import Operator, Work

_Event = dict[str, Any]
# Process, thread and time of an event.
_Place = tuple[Any, Any, float]


def link(work: Iterable[tuple[Work, _Event]], operators: Sequence[Operator], events: Iterable[_Event]) -> None:
    """Set the operator of each piece of work that one is known for.

    Args:
        work: What the card did, each with its event.
        operators: Of the host.
        events: All of the trace that both are from.
    """
    by_number = {operator.external_id: operator for operator in operators if operator.external_id}
    launches, arrows = _launches_and_arrows(events)
    by_arrow: dict[Any, list[tuple[float, Work]]] = {}
    for each, event in work:
        arguments = event.get("args") or {}
        number = external_id(arguments) or launches.get(arguments.get("correlation"), 0)
        each.operator = by_number.get(number)
        start = arrows.get(_place(event))
        if each.operator is None and start is not None:
            by_arrow.setdefault(start[1], []).append((start[2], each))
    threads = by_thread(operators)
    for thread, starts in by_arrow.items():
        starts.sort(key=lambda pair: pair[0])
        running = innermost(threads.get(thread, []), (time for time, _ in starts))
        for operator, (_, each) in zip(running, starts, strict=True):
            each.operator = operator


def external_id(arguments: dict[str, Any]) -> int:
    """Return torch's number for an operator from an event's arguments; 0 where there is none."""
    return int(arguments.get("External id", arguments.get("external id", 0)) or 0)


def _launches_and_arrows(events: Iterable[_Event]) -> tuple[dict[Any, int], dict[_Place, _Place]]:
    """Return the number of the operator by the correlation of its launch, and where arrows start by where they end."""
    launches: dict[Any, int] = {}
    starts: dict[Any, _Place] = {}
    ends: list[tuple[Any, _Place]] = []
    for event in events:
        phase = event.get("ph")
        if phase == "X":
            arguments = event.get("args") or {}
            number = external_id(arguments)
            if number and "correlation" in arguments:
                launches[arguments["correlation"]] = number
        # Arrows from the forward to the backward pass are torch's, too.
        elif phase in {"s", "f"} and event.get("cat") != "fwdbwd":
            if phase == "s":
                starts[event.get("id")] = _place(event)
            else:
                ends.append((event.get("id"), _place(event)))
    return launches, {place: starts[number] for number, place in ends if number in starts}


def _place(event: _Event) -> _Place:
    return event["pid"], event["tid"], float(event["ts"])
