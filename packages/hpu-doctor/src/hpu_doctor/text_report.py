"""Text reports: plain lines in printable ASCII."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from click import HelpFormatter

from hpu_doctor.checks import Check, can_train
from hpu_doctor.known_errors import Explanation
from hpu_doctor.machine import Machine
from hpu_doctor.migrate.program import SourceFile
from hpu_doctor.name_ranges import format_hosts

# Lines of a report on many machines or ranks.
_MAX_VALUES: Final = 6
_MAX_PROBLEMS: Final = 10
_MAX_ISSUES: Final = 20
# Messages of drivers and libraries can have anything.
_NOT_PLAIN: Final = re.compile(r"[^ -~\n]")


def format_checks(machine: Machine, checks: Sequence[Check]) -> str:
    """Return the result of every check, then each problem with its fix."""
    problems = [problem for check in checks for problem in check.problems]
    lines = [f"Checks of {machine.host}"]
    lines += [_two_columns([(f"{_state(check):5}  {check.name}", check.detail) for check in checks]), ""]
    for problem in sorted(problems, key=lambda problem: not problem.blocks_training):
        lines += _problem(problem.blocks_training, problem.message, problem.hint)
    if not can_train(checks):
        lines.append("Training cannot start.")
    else:
        lines.append("Training can start; see the notes." if problems else "No problem found.")
    return _text(lines)


def format_comparison(report: Mapping[str, Any]) -> str:
    """Return what differs between machines, then their problems, on about a page for any number of machines."""
    hosts = report["hosts"]
    lines = [f"{len(hosts)} machines: {format_hosts(hosts)}"]
    odd = set()
    for difference in report["differences"]:
        rows = [
            (value, f"{len(names)} machine{'s' * (len(names) > 1)}: {format_hosts(names)}")
            for value, names in difference["hosts"].items()
        ]
        lines += [f"Error: {difference['name']} differs", _two_columns(rows[:_MAX_VALUES])]
        lines += _rest(rows[_MAX_VALUES:], "values")
        # The value of most machines is first.
        odd |= {host for names in list(difference["hosts"].values())[1:] for host in names}
    groups: dict[tuple[bool, str, str], list[str]] = {}
    for host, problems in report["problems"].items():
        for problem in problems:
            groups.setdefault((problem["blocks_training"], problem["message"], problem["hint"]), []).append(host)
            odd |= {host} if problem["blocks_training"] else set()
    rated = sorted(groups.items(), key=lambda group: (not group[0][0], -len(group[1])))
    for (blocks_training, message, hint), names in rated[:_MAX_PROBLEMS]:
        lines += _problem(blocks_training, f"{format_hosts(names)}: {message}", hint)
    lines += _rest(rated[_MAX_PROBLEMS:], "problems")
    if report["can_train"]:
        lines.append("The machines have the same versions.")
    else:
        if len(odd) * 2 < len(hosts):
            others = format_hosts(host for host in hosts if host in odd)
            lines.append(f"{len(hosts) - len(odd)} machines can train together without {others}.")
        lines.append("Training cannot start on these machines together.")
    return _text(lines)


def format_collectives(report: Mapping[str, Any]) -> str:
    """Return the time of each collective, then the faults."""
    ranks = [rank for rank in report["ranks"] if rank is not None]
    times = {name: [rank["seconds"][name] for rank in ranks] for name in (ranks[0]["seconds"] if ranks else ())}
    links = [seconds for rank in ranks for seconds in rank["link_seconds"].values()]
    times |= {"send and receive": links} if links else {}
    rows = [(name, f"{1e3 * min(each):.2f} to {1e3 * max(each):.2f} ms") for name, each in times.items()]
    lines = [f"{report['world_size']} ranks, {report['bytes'] / 2**20:g} MiB each", _two_columns(rows)]
    issues = report["findings"]
    lines += [f"{'Note' if each['kind'] == 'slow' else 'Error'}: {each['message']}" for each in issues[:_MAX_ISSUES]]
    lines += _rest(issues[_MAX_ISSUES:], "faults")
    lines += ["All results are correct."] if report["ok"] else []
    return _text(lines)


def format_explanations(explanations: Sequence[Explanation]) -> str:
    """Return explanations of errors, in their order."""
    parts = []
    for found in explanations:
        more = f" (and {found.count - 1} more)" if found.count > 1 else ""
        reported = f"{'' if found.error.on_card else 'not '}reported from a real card"
        rows = [
            ("Cause", found.error.cause),
            ("Cure", found.error.cure),
            ("Source", f"{found.error.source} ({reported})"),
        ]
        parts.append(_text([f"Line {found.line_number}{more}: {found.line}", _two_columns(rows)]))
    return "\n\n".join(parts)


def format_migration(files: Sequence[SourceFile], fixed: int, *, fix: bool) -> str:
    """Return the lines of files that use CUDA, with what to write instead, and how many were changed.

    Args:
        files: The files with the usages that they (still) have.
        fixed: Number of usages that were changed.
        fix: Whether the files were changed.
    """
    usages = [(source, usage) for source in files for usage in source.usages]
    lines = []
    for source, usage in usages:
        change = f" [--fix: {usage.edit.text}]" if usage.edit is not None else ""
        lines += [f"{source.path}:{usage.line}:{usage.column}: {usage.found}", f"  {usage.hint}{change}"]
    names = f"{len(files)} file{'s' * (len(files) != 1)}"
    if fix:
        lines.append(f"{fixed} changed, {len(usages)} left to change by hand, in {names}.")
    elif usages:
        safe = sum(usage.edit is not None for _, usage in usages)
        lines.append(f"{len(usages)} to change in {names}, of which `--fix` changes {safe}.")
    else:
        lines.append(f"No CUDA in {names}.")
    return _text(lines)


def _state(check: Check) -> str:
    if any(problem.blocks_training for problem in check.problems):
        return "Error"
    return "Note" if check.problems else "OK"


def _problem(blocks_training: bool, message: str, hint: str) -> list[str]:
    return [f"{'Error' if blocks_training else 'Note'}: {message}", f"  {hint}"]


def _rest(rest: Sequence[object], what: str) -> list[str]:
    return [f"  ... and {len(rest)} more {what}, which `--json` lists"] if rest else []


def _two_columns(rows: Sequence[tuple[str, str]]) -> str:
    """Return lines of two columns, of which the second one wraps."""
    formatter = HelpFormatter()
    if rows:
        formatter.write_dl(rows, col_max=40, col_spacing=1)
    return formatter.getvalue().rstrip("\n")


def _text(lines: Sequence[str]) -> str:
    return _NOT_PLAIN.sub("?", "\n".join(lines))
