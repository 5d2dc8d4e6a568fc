"""Text reports of `hpu-info doctor`, in plain ASCII. Colour adds no information."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.padding import Padding

from hpu_core.info._compare import Comparison
from hpu_core.info._doctor import Check, can_train
from hpu_core.info._machine import Machine
from hpu_core.info._render import safe_text, two_columns


def render_checks(console: Console, machine: Machine, checks: tuple[Check, ...]) -> None:
    """Print the result of every check, then each problem with its cure.

    Args:
        console: Console to print to, at least 60 columns wide.
        machine: Facts of the machine.
        checks: The checks in the order of the report.
    """
    console.print(safe_text(f"Checks of {machine.host}", "bold"))
    console.print(two_columns([(f"{_state(check):5}  {check.name}", check.detail) for check in checks]))
    console.print()
    problems = [problem for check in checks for problem in check.problems]
    for problem in sorted(problems, key=lambda problem: not problem.blocks_training):
        _print_problem(console, "", problem.blocks_training, problem.message, problem.hint)
    if not can_train(checks):
        console.print(safe_text("Training cannot start.", "bold red"))
    elif problems:
        console.print(safe_text("Training can start; see the notes.", "bold green"))
    else:
        console.print(safe_text("No problem found.", "bold green"))


def render_comparison(console: Console, comparison: Comparison) -> None:
    """Print what differs between machines, then the problems of each.

    Args:
        console: Console to print to, at least 60 columns wide.
        comparison: The comparison.
    """
    console.print(safe_text(f"{len(comparison.hosts)} machines: {', '.join(comparison.hosts)}", "bold"))
    for difference in comparison.differences:
        console.print(safe_text(f"Error: {difference.name} differs", "bold red"))
        console.print(two_columns([(f"  {value}", ", ".join(hosts)) for value, hosts in difference.hosts.items()]))
    for host, problems in comparison.problems.items():
        for blocks_training, message, hint in problems:
            _print_problem(console, f"{host}: ", blocks_training, message, hint)
    if comparison.can_train:
        console.print(safe_text("The machines have the same versions.", "bold green"))
    else:
        console.print(safe_text("Training cannot start on these machines together.", "bold red"))


def render_collectives(console: Console, report: Mapping[str, Any]) -> None:
    """Print the time of each collective, then the faults.

    Args:
        console: Console to print to, at least 60 columns wide.
        report: JSON report of the check.
    """
    ranks = [rank for rank in report["ranks"] if rank is not None]
    title = f"{report['world_size']} ranks, {report['bytes'] / 2**20:g} MiB each"
    console.print(safe_text(title, "bold"))
    rows = {name: [rank["seconds"][name] for rank in ranks] for name in (ranks[0]["seconds"] if ranks else ())}
    links = [seconds for rank in ranks for seconds in rank["link_seconds"].values()]
    rows |= {"send and receive": links} if links else {}
    console.print(
        two_columns([(name, f"{1e3 * min(times):.2f} to {1e3 * max(times):.2f} ms") for name, times in rows.items()])
    )
    for finding in report["findings"]:
        label, style = ("Note", "bold yellow") if finding["kind"] == "slow" else ("Error", "bold red")
        console.print(safe_text(f"{label}: {finding['message']}", style))
    if report["ok"]:
        console.print(safe_text("All values are right.", "bold green"))


def _state(check: Check) -> str:
    if any(problem.blocks_training for problem in check.problems):
        return "Error"
    return "Note" if check.problems else "OK"


def _print_problem(console: Console, where: str, blocks_training: bool, message: str, hint: str) -> None:
    label, style = ("Error", "bold red") if blocks_training else ("Note", "bold yellow")
    console.print(safe_text(f"{label}: {where}{message}", style))
    console.print(Padding(safe_text(hint), (0, 0, 0, 2)))
