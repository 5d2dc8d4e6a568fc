"""Comparison of the reports that `hpu-doctor --json` printed on the machines of a job."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hpu_doctor.checks import SCHEMA
from hpu_doctor.name_ranges import number_hosts

_NUMBER: Final = re.compile(r"\d+")


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
        return not self.different and not self.differences

    @property
    def different(self) -> tuple[str, ...]:
        """Machines that differ from most others, or have a problem that blocks training."""
        different = {host for each in self.differences for hosts in list(each.hosts.values())[1:] for host in hosts} | {
            host for host, problems in self.problems.items() if any(blocks for blocks, _, _ in problems)
        }
        return tuple(host for host in self.hosts if host in different)

    def group_problems(self) -> list["ProblemGroup"]:
        """Return the problems with the machines that have them; those that block training and of most machines first.

        Messages that differ in numbers only, such as a process id, are of one group.
        """
        groups: dict[tuple[bool, str], ProblemGroup] = {}
        for host, problems in self.problems.items():
            for blocks, message, hint in problems:
                group = groups.setdefault((blocks, _NUMBER.sub("#", message)), ProblemGroup(blocks, message, hint))
                group.hosts.append(host)
                group.messages.add(message)
        return sorted(groups.values(), key=lambda group: (not group.blocks_training, -len(group.hosts)))


@dataclass(slots=True)
class ProblemGroup:
    """Problem of several machines.

    Attributes:
        blocks_training: Whether it blocks training.
        message: Its message on the first of the machines.
        hint: Its cure there.
        hosts: The machines, each as often as it has the problem.
        messages: The messages, which differ in numbers.
    """

    blocks_training: bool
    message: str
    hint: str
    hosts: list[str] = field(default_factory=list)
    messages: set[str] = field(default_factory=set)


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
        if report.get("schema_version") != SCHEMA or not isinstance(report.get("versions"), dict):
            raise ValueError(f"a report must be of `hpu-doctor --json` with schema {SCHEMA}, got another one")
    return tuple(reports)


def compare(reports: Sequence[Mapping[str, Any]]) -> Comparison:
    """Compare the reports of machines.

    Args:
        reports: The reports. Of several from one boot of a machine, the last one counts. Machines of one host name are
            numbered: "localhost (2)".
    """
    machines = {(str(report["host"]), str(report["boot_id"])): report for report in reports}
    by_host = dict(zip(number_hosts(machines), machines.values(), strict=True))
    names = dict.fromkeys(name for report in by_host.values() for name in report["versions"])
    differences = [
        difference
        for name in names
        if (difference := _difference(name, {host: _value(by_host[host], name) for host in by_host}))
    ]
    return Comparison(
        hosts=tuple(by_host), differences=tuple(differences), problems={h: _problems(r) for h, r in by_host.items()}
    )


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain data that `json` can serialize."""
    return {
        "schema_version": SCHEMA,
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
    hosts: dict[str, list[str]] = {}
    for host, value in values.items():
        hosts.setdefault(value, []).append(host)
    if len(hosts) <= 1:
        return None
    by_number = sorted(hosts.items(), key=lambda item: -len(item[1]))
    return Difference(name=name, hosts={value: tuple(names) for value, names in by_number})


def _problems(report: Mapping[str, Any]) -> tuple[tuple[bool, str, str], ...]:
    problems = [
        (bool(problem["blocks_training"]), str(problem["message"]), str(problem["hint"]))
        for check in report.get("checks", ())
        for problem in check["problems"]
    ]
    return tuple(sorted(problems, key=lambda problem: not problem[0]))
