"""The file that metrics are written to, by variables or by ``metrics_dump``."""

from __future__ import annotations

import atexit
import json
import logging
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from habana_frameworks.torch.hpu import metrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from habana_frameworks.torch.hpu.metrics import Metric

_FILE_VARIABLES: Final = ("PT_HPU_METRICS_FILE", "HABANA_PT_METRICS_FILE")
_FORMAT_VARIABLE: Final = "PT_HPU_METRICS_FILE_FORMAT"
_TRIGGERS_VARIABLE: Final = "PT_HPU_METRICS_DUMP_TRIGGERS"
_TRIGGERS: Final = ("process_exit", "mark_step", "metric_change", "user")

_logger = logging.getLogger(__name__)


class _Writer:
    """Writes the global metrics when something happens that was asked for."""

    def __init__(self, file_name: str, form: str, triggers: frozenset[str]) -> None:
        self._file_name = file_name
        self._form = form
        self._triggers = triggers
        self._last = self._values()

    @staticmethod
    def _values() -> list[list[tuple[str, Any]]]:
        return [metric.stats() for metric in metrics._global_metrics.values()]  # noqa: SLF001 - of the same bridge

    def notice(self, trigger: str) -> None:
        """Write because of ``trigger``, and because a metric has changed, where either was asked for."""
        values = self._values()
        changed, self._last = values != self._last, values
        for reason in (trigger, *(["metric_change"] if changed else [])):
            if reason in self._triggers:
                dump(self._file_name, self._form, reason, metrics._global_metrics.values())  # noqa: SLF001 - as above


def dump(file_name: str, form: str, trigger: str, metrics: Iterable[Metric]) -> None:
    """Add an entry per metric to a file.

    Raises:
        ValueError: If the format is neither ``"json"`` nor ``"text"``.
        OSError: If the file cannot be written.
    """
    if form not in {"json", "text"}:
        raise ValueError(f"`format` must be 'json' or 'text', got {form!r}")
    path = _of_this_rank(Path(file_name))
    entries = [
        {
            "metric_name": metric.name(),
            "triggered_by": trigger,
            "generated_on": datetime.now().astimezone().strftime("%B %d, %Y %H:%M:%S"),
            "statistics": dict(metric.stats()),
            "simulated": True,
        }
        for metric in metrics
    ]
    if form == "json":
        before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        path.write_text(json.dumps([*before, *entries], indent=4), encoding="utf-8")
    else:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{key}: {value}\n" for entry in entries for key, value in entry.items())


def _of_this_rank(path: Path) -> Path:
    rank = os.environ.get("RANK")
    return path if rank is None else path.with_name(f"{path.stem}-rank{rank}{path.suffix}")


def _read_variables() -> _Writer | None:
    file_name = next((os.environ[name] for name in _FILE_VARIABLES if os.environ.get(name)), None)
    if file_name is None:
        return None
    text = os.environ.get(_TRIGGERS_VARIABLE, "process_exit")
    triggers = frozenset(part.strip() for part in text.split(","))
    if unknown := triggers.difference(_TRIGGERS):
        _logger.warning("%s names unknown triggers: %s", _TRIGGERS_VARIABLE, ", ".join(sorted(unknown)))
    return _Writer(file_name, os.environ.get(_FORMAT_VARIABLE, "json"), triggers)


_writer = _read_variables()


def notice(trigger: str) -> None:
    """Tell that something happened which metrics may be written for."""
    if _writer is not None:
        _writer.notice(trigger)


if _writer is not None:
    atexit.register(_writer.notice, "process_exit")
