"""Rules of the Chrome trace format that Perfetto's importer enforces by dropping events.

Sources: Chrome's "Trace Event Format" for the phases X, M, s, f, i and C, and the import errors that Perfetto counts:
complete events of a track that overlap without nesting, flows outside of any event, flows without a start, and events
without process, thread or time.
"""

from collections.abc import Iterable
from typing import Any

JsonEvent = dict[str, Any]

_METADATA = {
    "process_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}


def violations(events: Iterable[JsonEvent]) -> list[str]:
    """Return a message for each rule that an event breaks."""
    events = list(events)
    complete = [event for event in events if event["ph"] == "X" and event.get("dur", -1) >= 0]
    return [
        *(f"no name: {event}" for event in events if not event.get("name") and event["ph"] != "E"),
        *(f"no process or thread: {event}" for event in events if "pid" not in event or "tid" not in event),
        *_metadata([event for event in events if event["ph"] == "M"]),
        *_times([event for event in events if event["ph"] != "M"]),
        *_overlaps(complete),
        *_flows([event for event in events if event["ph"] in {"s", "f"}], complete),
    ]


def _metadata(events: list[JsonEvent]) -> list[str]:
    return [
        f"metadata without a value: {event}"
        for event in events
        if event["name"] not in _METADATA or _METADATA[event["name"]] not in event.get("args", {})
    ]


def _times(events: list[JsonEvent]) -> list[str]:
    return [
        f"no time or negative duration: {event}"
        for event in events
        if not isinstance(event.get("ts"), (int, float)) or (event["ph"] == "X" and not event.get("dur", -1) >= 0)
    ]


def _overlaps(complete: list[JsonEvent]) -> list[str]:
    found = []
    for track in _tracks(complete).values():
        stack: list[JsonEvent] = []
        for event in track:
            while stack and _end(stack[-1]) <= event["ts"]:
                stack.pop()
            # Times are written in microseconds with three decimals.
            if stack and _end(event) > _end(stack[-1]) + 0.001:
                found.append(f"overlap without nesting: {stack[-1]} and {event}")
            stack.append(event)
    return found


def _flows(flows: list[JsonEvent], complete: list[JsonEvent]) -> list[str]:
    tracks = _tracks(complete)
    starts = {(event["cat"], event["id"]) for event in flows if event["ph"] == "s"}
    ends = [(event["cat"], event["id"]) for event in flows if event["ph"] == "f"]
    return [
        *(f"flow without a start: {flow}" for flow in ends if flow not in starts),
        *(f"flow without an end: {flow}" for flow in starts - set(ends)),
        *(
            f"flow outside of any event: {flow}"
            for flow in flows
            if not any(event["ts"] <= flow["ts"] <= _end(event) for event in tracks.get((flow["pid"], flow["tid"]), []))
        ),
    ]


def _tracks(complete: list[JsonEvent]) -> dict[tuple[Any, Any], list[JsonEvent]]:
    tracks: dict[tuple[Any, Any], list[JsonEvent]] = {}
    for event in complete:
        tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for track in tracks.values():
        track.sort(key=lambda event: (event["ts"], -event["dur"]))
    return tracks


def _end(event: JsonEvent) -> float:
    return float(event["ts"] + event["dur"])
