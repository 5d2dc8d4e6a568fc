"""Text reports in plain ASCII. Colour adds no information."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hpu_core.discovery import printable
from hpu_doctor.checks import Check, can_train
from hpu_doctor.comparison import Comparison
from hpu_doctor.known_errors import Explanation
from hpu_doctor.machine import Machine
from hpu_doctor.migrate.program import SourceFile
from hpu_doctor.name_ranges import format_hosts

# Lines of a report on many machines or ranks.
_MAX_VALUES: Final = 6
_MAX_PROBLEMS: Final = 10
_MAX_ISSUES: Final = 20


def render_checks(console: Console, machine: Machine, checks: tuple[Check, ...]) -> None:
    """Print the result of every check, then each problem with its fix.

    Args:
        console: Console to print to, at least 60 columns wide.
        machine: Facts of the machine.
        checks: The checks in the order of the report.
    """
    console.print(_safe_text(f"Checks of {machine.host}", "bold"))
    console.print(_two_columns([(f"{_state(check):5}  {check.name}", check.detail) for check in checks]))
    console.print()
    problems = [problem for check in checks for problem in check.problems]
    for problem in sorted(problems, key=lambda problem: not problem.blocks_training):
        _print_problem(console, "", problem.blocks_training, problem.message, problem.hint)
    if not can_train(checks):
        console.print(_safe_text("Training cannot start.", "bold red"))
    elif problems:
        console.print(_safe_text("Training can start; see the notes.", "bold green"))
    else:
        console.print(_safe_text("No problem found.", "bold green"))


def render_comparison(console: Console, comparison: Comparison) -> None:
    """Print what differs between machines, then their problems, on about a page for any number of machines."""
    hosts, different = comparison.hosts, comparison.different
    console.print(_safe_text(f"{len(hosts)} machines: {format_hosts(hosts)}", "bold"))
    for difference in comparison.differences:
        console.print(_safe_text(f"Error: {difference.name} differs", "bold red"))
        rows = [
            (value, f"{len(names)} machine{'s' * (len(names) > 1)}: {format_hosts(names)}")
            for value, names in difference.hosts.items()
        ]
        console.print(_two_columns(rows[:_MAX_VALUES]))
        _print_rest(console, rows[_MAX_VALUES:], "values")
    groups = comparison.group_problems()
    for group in groups[:_MAX_PROBLEMS]:
        names = sorted(set(group.hosts), key=hosts.index)
        where = (
            f"{format_hosts(names)}: " if len(group.messages) == 1 else f"{format_hosts(names)}, such as {names[0]}: "
        )
        _print_problem(console, where, group.blocks_training, group.message, group.hint)
    _print_rest(console, groups[_MAX_PROBLEMS:], "problems")
    if comparison.can_train:
        console.print(_safe_text("The machines have the same versions.", "bold green"))
        return
    if len(different) * 2 < len(hosts):
        rest = len(hosts) - len(different)
        console.print(_safe_text(f"{rest} machines can train together without {format_hosts(different)}."))
    console.print(_safe_text("Training cannot start on these machines together.", "bold red"))


def _print_rest(console: Console, rest: Sequence[object], what: str) -> None:
    if rest:
        console.print(_safe_text(f"  ... and {len(rest)} more {what}, which `--json` lists"))


def render_collectives(console: Console, report: Mapping[str, Any]) -> None:
    """Print the time of each collective, then the faults."""
    ranks = [rank for rank in report["ranks"] if rank is not None]
    title = f"{report['world_size']} ranks, {report['bytes'] / 2**20:g} MiB each"
    console.print(_safe_text(title, "bold"))
    rows = {name: [rank["seconds"][name] for rank in ranks] for name in (ranks[0]["seconds"] if ranks else ())}
    links = [seconds for rank in ranks for seconds in rank["link_seconds"].values()]
    rows |= {"send and receive": links} if links else {}
    console.print(
        _two_columns([(name, f"{1e3 * min(times):.2f} to {1e3 * max(times):.2f} ms") for name, times in rows.items()])
    )
    for issue in report["findings"][:_MAX_ISSUES]:
        label, style = ("Note", "bold yellow") if issue["kind"] == "slow" else ("Error", "bold red")
        console.print(_safe_text(f"{label}: {issue['message']}", style))
    _print_rest(console, report["findings"][_MAX_ISSUES:], "faults")
    if report["ok"]:
        console.print(_safe_text("All results are correct.", "bold green"))


def render_explanations(console: Console, explanations: Sequence[Explanation]) -> None:
    """Print explanations of errors.

    Args:
        console: Console to print to, at least 60 columns wide.
        explanations: The errors in the order of the report, at least one.
    """
    for index, found in enumerate(explanations):
        if index:
            console.print()
        more = f" (and {found.count - 1} more)" if found.count > 1 else ""
        console.print(_safe_text(f"Line {found.line_number}{more}: {found.line}", "bold"))
        evidence = "reported from a real card" if found.error.on_card else "not reported from a real card"
        rows = [
            ("Cause", found.error.cause),
            ("Cure", found.error.cure),
            ("Source", f"{found.error.source} ({evidence})"),
        ]
        console.print(_two_columns(rows))


def render_migration(console: Console, files: Sequence[SourceFile], fixed: int, *, is_fixing: bool) -> None:
    """Print the CUDA idioms of files by line, with what to write instead, and how many were changed.

    Args:
        console: Console to print to.
        files: The files with the idioms that they have (left).
        fixed: Number of idioms that were changed.
        is_fixing: Whether the files were changed.
    """
    safe = 0
    for source in files:
        for finding in source.findings:
            safe += finding.edit is not None
            line = f"{source.path}:{finding.line}:{finding.column}: {finding.found}"
            console.print(_safe_text(line, "bold"))
            change = f" [--fix: {finding.edit.text}]" if finding.edit is not None else ""
            console.print(Text("  "), _safe_text(f"{finding.advice}{change}"), sep="")
    total = sum(len(source.findings) for source in files)
    names = f"{len(files)} file{'s' * (len(files) != 1)}"
    if is_fixing:
        console.print(_safe_text(f"{fixed} changed, {total} left to change by hand, in {names}."))
    elif total:
        console.print(_safe_text(f"{total} to change in {names}, of which `--fix` changes {safe}."))
    else:
        console.print(_safe_text(f"No CUDA in {names}.", "bold green"))


def _state(check: Check) -> str:
    if any(problem.blocks_training for problem in check.problems):
        return "Error"
    if check.problems:
        return "Note"
    return "OK" if check.is_done else "Unknown"


def _print_problem(console: Console, where: str, blocks_training: bool, message: str, hint: str) -> None:
    label, style = ("Error", "bold red") if blocks_training else ("Note", "bold yellow")
    console.print(_safe_text(f"{label}: {where}{message}", style))
    console.print(Padding(_safe_text(hint), (0, 0, 0, 2)))


def _two_columns(rows: Sequence[tuple[str, str]]) -> Table:
    """Return a table of which the second column wraps."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(_safe_text(name), _safe_text(value))
    return table


def _safe_text(text: str, style: str = "") -> Text:
    """Return text in printable ASCII, whose markup is not interpreted."""
    # Text instead of str, because rich would interpret markup in messages of drivers and libraries.
    return Text("\n".join(printable(line) if line.strip() else "" for line in text.splitlines()), style=style)
