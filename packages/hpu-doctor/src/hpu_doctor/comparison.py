"""Comparison of the reports that `hpu-doctor --json` printed on the machines of a job."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpu_doctor.checks import SCHEMA
from hpu_doctor.name_ranges import number_hosts


def parse_reports(text: str) -> list[dict[str, Any]]:
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
    return reports


def compare(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare the reports of machines, and return a report that `json` can serialize.

    Of each version that differs it has the machines by value, the value of most machines first, and of each machine
    its problems, those that block training first.

    Args:
        reports: The reports. Of several from one boot of a machine, the last one counts. Machines of one host name are
            numbered: "localhost (2)".
    """
    machines = {(str(report["host"]), str(report["boot_id"])): report for report in reports}
    by_host = dict(zip(number_hosts(machines), machines.values(), strict=True))
    differences = []
    for name in dict.fromkeys(name for report in by_host.values() for name in report["versions"]):
        hosts: dict[str, list[str]] = {}
        for host, report in by_host.items():
            value = report["versions"].get(name)
            hosts.setdefault("unknown" if value is None else str(value), []).append(host)
        if len(hosts) > 1:
            differences.append({"name": name, "hosts": dict(sorted(hosts.items(), key=lambda item: -len(item[1])))})
    problems = {
        host: sorted(
            (problem for check in report.get("checks", ()) for problem in check["problems"]),
            key=lambda problem: not problem["blocks_training"],
        )
        for host, report in by_host.items()
    }
    blocked = any(problem["blocks_training"] for each in problems.values() for problem in each)
    return {
        "schema_version": SCHEMA,
        "can_train": not differences and not blocked,
        "hosts": list(by_host),
        "differences": differences,
        "problems": problems,
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
