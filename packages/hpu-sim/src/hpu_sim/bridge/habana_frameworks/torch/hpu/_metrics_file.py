"""Metrics file, written by the triggers of ``PT_HPU_METRICS_DUMP_TRIGGERS`` and by ``metrics_dump``."""

from __future__ import annotations

import atexit
import json
import logging
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Statistics of metrics, in the bridge's order, by name.
Stats = dict[str, list[tuple[str, Any]]]

_FILE_VARIABLES: Final = ("PT_HPU_METRICS_FILE", "HABANA_PT_METRICS_FILE")
_FORMAT_VARIABLE: Final = "PT_HPU_METRICS_FILE_FORMAT"
_TRIGGERS_VARIABLE: Final = "PT_HPU_METRICS_DUMP_TRIGGERS"
_TRIGGERS: Final = ("process_exit", "mark_step", "metric_change", "user")

_logger = logging.getLogger(__name__)
_writers: list[_Writer] = []


class _Writer:
    """Writer of the global metrics."""

    def __init__(self, read: Callable[[], Stats], file_name: str, form: str, triggers: frozenset[str]) -> None:
        self._read = read
        self._file_name = file_name
        self._form = form
        self._triggers = triggers
        self._last = read()

    def notify(self, trigger: str) -> None:
        """Write an entry for ``trigger``, and one for "metric_change" if a metric has changed, where asked for."""
        stats = self._read()
        changed, self._last = stats != self._last, stats
        for reason in (trigger, *(["metric_change"] if changed else [])):
            if reason in self._triggers:
                dump(self._file_name, self._form, reason, stats)


def start(read: Callable[[], Stats]) -> None:
    """Start to write metrics to the file that ``PT_HPU_METRICS_FILE`` names; do nothing where it is unset."""
    file_name = next((os.environ[name] for name in _FILE_VARIABLES if os.environ.get(name)), None)
    if file_name is None:
        return
    text = os.environ.get(_TRIGGERS_VARIABLE, "process_exit")
    triggers = frozenset(part.strip() for part in text.split(","))
    if unknown := triggers.difference(_TRIGGERS):
        _logger.warning("%s names unknown triggers: %s", _TRIGGERS_VARIABLE, ", ".join(sorted(unknown)))
    _writers.append(_Writer(read, file_name, os.environ.get(_FORMAT_VARIABLE, "json"), triggers))
    atexit.register(notify, "process_exit")


def notify(trigger: str) -> None:
    """Write the metrics if they are to be written on ``trigger``."""
    for writer in _writers:
        writer.notify(trigger)


def dump(file_name: str, form: str, trigger: str, stats: Stats) -> None:
    """Append an entry per metric to a file.

    Raises:
        ValueError: If the format is neither ``"json"`` nor ``"text"``.
        OSError: If the file cannot be written.
    """
    if form not in {"json", "text"}:
        raise ValueError(f"`format` must be 'json' or 'text', got {form!r}")
    path = _path_with_rank(Path(file_name))
    entries = [
        {
            "metric_name": name,
            "triggered_by": trigger,
            "generated_on": datetime.now().astimezone().strftime("%B %d, %Y %H:%M:%S"),
            "statistics": dict(values),
            "simulated": True,
        }
        for name, values in stats.items()
    ]
    if form == "json":
        before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        path.write_text(json.dumps([*before, *entries], indent=4), encoding="utf-8")
    else:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{key}: {value}\n" for entry in entries for key, value in entry.items())


def _path_with_rank(path: Path) -> Path:
    rank = os.environ.get("RANK")
    return path if rank is None else path.with_name(f"{path.stem}-rank{rank}{path.suffix}")
