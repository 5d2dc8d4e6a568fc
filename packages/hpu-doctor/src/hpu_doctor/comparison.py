"""Comparison of the reports that `hpu-doctor --json` printed on the machines of a job."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hpu_doctor.checks import SCHEMA

# The reports of a job are printed at the same time; a launcher may take a while to start all of them.
_MAX_CLOCK_DIFFERENCE: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Property in which machines differ.

    Attributes:
        name: The property.
        hosts: Machines by value; the value of most machines is first.
    """

    name: str
    hosts: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Result of `compare`.

    Attributes:
        hosts: The machines.
        differences: What differs between them.
        problems: Problems by machine, those that block training first; each with that flag, its message and its cure.
    """

    hosts: tuple[str, ...]
    differences: tuple[Difference, ...]
    problems: Mapping[str, tuple[tuple[bool, str, str], ...]]

    @property
    def can_train(self) -> bool:
        """Whether nothing differs and no machine has a problem that blocks training."""
        blocked = any(blocks for problems in self.problems.values() for blocks, _, _ in problems)
        return not self.differences and not blocked


def parse_reports(text: str) -> tuple[dict[str, Any], ...]:
    """Return the reports in a text: one report, or one on each line among other output.

    Args:
        text: What one or several machines printed.

    Raises:
        ValueError: There is no report, or one of another schema.
    """
    reports = list(_documents(text))
    if not reports:
        raise ValueError("it must have a report of `hpu-doctor --json`, got none")
    for report in reports:
        if report.get("schema") != SCHEMA or not isinstance(report.get("versions"), dict):
            raise ValueError(f"a report must be of `hpu-doctor --json` with schema {SCHEMA}, got another one")
    return tuple(reports)


def compare(reports: Sequence[Mapping[str, Any]]) -> Comparison:
    """Compare the reports of machines.

    Args:
        reports: The reports. Of several from one machine, the last one counts.
    """
    by_host = {str(report["host"]): report for report in reports}
    names = dict.fromkeys(name for report in by_host.values() for name in report["versions"])
    differences = [
        difference
        for name in names
        if (difference := _difference(name, {host: _value(by_host[host], name) for host in by_host}))
    ]
    times = [float(report["time"]) for report in by_host.values()]
    if max(times) - min(times) > _MAX_CLOCK_DIFFERENCE:
        clocks = {host: f"{report['time'] - min(times):.0f} s" for host, report in by_host.items()}
        clock = _difference("clock (or the reports were printed at different times)", clocks)
        differences += [clock] if clock else []
    return Comparison(
        hosts=tuple(by_host), differences=tuple(differences), problems={h: _problems(r) for h, r in by_host.items()}
    )


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data that `json` can serialize."""
    return {
        "schema": SCHEMA,
        "can_train": comparison.can_train,
        "hosts": list(comparison.hosts),
        "differences": [
            {"name": difference.name, "hosts": {value: list(hosts) for value, hosts in difference.hosts.items()}}
            for difference in comparison.differences
        ],
        "problems": {
            host: [{"blocks_training": blocks, "message": message, "hint": hint} for blocks, message, hint in problems]
            for host, problems in comparison.problems.items()
        },
    }


def _documents(text: str) -> Iterator[dict[str, Any]]:
    try:
        documents = [json.loads(text)]
    except ValueError:
        documents = [_parse_line(line) for line in text.splitlines() if line.lstrip().startswith("{")]
    yield from (document for document in documents if isinstance(document, dict))


def _parse_line(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _value(report: Mapping[str, Any], name: str) -> str:
    value = report["versions"].get(name)
    return "unknown" if value is None else str(value)


def _difference(name: str, values: Mapping[str, str]) -> Difference | None:
    hosts: dict[str, tuple[str, ...]] = {}
    for host, value in values.items():
        hosts[value] = (*hosts.get(value, ()), host)
    if len(hosts) <= 1:
        return None
    return Difference(name=name, hosts=dict(sorted(hosts.items(), key=lambda item: -len(item[1]))))


def _problems(report: Mapping[str, Any]) -> tuple[tuple[bool, str, str], ...]:
    problems = [
        (bool(problem["blocks_training"]), str(problem["message"]), str(problem["hint"]))
        for check in report.get("checks", ())
        for problem in check["problems"]
    ]
    return tuple(sorted(problems, key=lambda problem: not problem[0]))
