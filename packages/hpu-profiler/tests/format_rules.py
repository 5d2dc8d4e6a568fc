"""The rules of Chrome's trace format that Perfetto's importer enforces, by leaving out what breaks them.

Sources: "Trace Event Format", Chrome's description, for the phases X, M, s, f, i and C; and Perfetto's counts of what
its importer has to drop: complete events that overlap in a track without lying within each other, flows that no event
encloses, ids that no flow began, events without process, thread or time.
"""

from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]

_METADATA = {
    "process_name": "name",
    "process_labels": "labels",
    "process_sort_index": "sort_index",
    "thread_name": "name",
    "thread_sort_index": "sort_index",
}


def violations(events: Iterable[Event]) -> list[str]:
    """Return what breaks a rule, in words."""
    events = list(events)
    complete = [event for event in events if event["ph"] == "X" and event.get("dur", -1) >= 0]
    return [
        *(f"no name: {event}" for event in events if not event.get("name") and event["ph"] != "E"),
        *(f"no place: {event}" for event in events if "pid" not in event or "tid" not in event),
        *_metadata([event for event in events if event["ph"] == "M"]),
        *_times([event for event in events if event["ph"] != "M"]),
        *_overlaps(complete),
        *_arrows([event for event in events if event["ph"] in {"s", "f"}], complete),
    ]


def _metadata(events: list[Event]) -> list[str]:
    return [
        f"metadata without what it says: {event}"
        for event in events
        if event["name"] not in _METADATA or _METADATA[event["name"]] not in event.get("args", {})
    ]


def _times(events: list[Event]) -> list[str]:
    return [
        f"no time, or less than none: {event}"
        for event in events
        if not isinstance(event.get("ts"), (int, float)) or (event["ph"] == "X" and not event.get("dur", -1) >= 0)
    ]


def _overlaps(complete: list[Event]) -> list[str]:
    found = []
    for track in _tracks(complete).values():
        running: list[Event] = []
        for event in track:
            while running and _end(running[-1]) <= event["ts"]:
                running.pop()
            # Times are written in microseconds with three digits after the point.
            if running and _end(event) > _end(running[-1]) + 0.001:
                found.append(f"neither apart nor within: {running[-1]} and {event}")
            running.append(event)
    return found


def _arrows(arrows: list[Event], complete: list[Event]) -> list[str]:
    tracks = _tracks(complete)
    begun = {(event["cat"], event["id"]) for event in arrows if event["ph"] == "s"}
    ended = [(event["cat"], event["id"]) for event in arrows if event["ph"] == "f"]
    return [
        *(f"an arrow from nowhere: {arrow}" for arrow in ended if arrow not in begun),
        *(f"an arrow to nowhere: {arrow}" for arrow in begun - set(ended)),
        *(
            f"an arrow that no event encloses: {arrow}"
            for arrow in arrows
            if not any(
                event["ts"] <= arrow["ts"] <= _end(event) for event in tracks.get((arrow["pid"], arrow["tid"]), [])
            )
        ),
    ]


def _tracks(complete: list[Event]) -> dict[tuple[Any, Any], list[Event]]:
    tracks: dict[tuple[Any, Any], list[Event]] = {}
    for event in complete:
        tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for track in tracks.values():
        track.sort(key=lambda event: (event["ts"], -event["dur"]))
    return tracks


def _end(event: Event) -> float:
    return float(event["ts"] + event["dur"])
