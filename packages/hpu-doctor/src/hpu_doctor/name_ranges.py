"""Short texts for many ranks or machines."""

import re
from collections.abc import Iterable
from typing import Final

# Fewer names, or numbers that follow each other, stay a list.
_MIN_RANGE: Final = 3
# The last number of the first label, such as 07 of "node-07.dc2.example.com".
_NUMBERED: Final = re.compile(r"([^.]*?)([0-9]+)([^0-9.]*(?:\..*)?)")


def format_ranks(ranks: Iterable[int]) -> str:
    """Return "rank 3", "ranks 1, 3" or "ranks 8-15, 20"."""
    numbers = [str(rank) for rank in sorted(ranks)]
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(_runs(numbers))}"


def format_hosts(hosts: Iterable[str]) -> str:
    """Return host names in the form that SLURM and pdsh take: "node-[001-127,130],login"."""
    families: dict[tuple[str, str], set[str]] = {}
    for host in hosts:
        match = _NUMBERED.fullmatch(host)
        prefix, number, suffix = match.groups() if match is not None else (host, "", "")
        families.setdefault((prefix, suffix), set()).add(number)
    texts = []
    for (prefix, suffix), found in families.items():
        numbers = sorted(found, key=lambda number: (int(number or 0), number))
        names = [f"[{','.join(_runs(numbers))}]"] if len(numbers) >= _MIN_RANGE else numbers
        texts += [f"{prefix}{name}{suffix}" for name in names]
    return ",".join(texts)


def number_hosts(machines: Iterable[tuple[str, str]]) -> list[str]:
    """Return a name for each machine: its host name, with a number from the second machine of that name on.

    Args:
        machines: Host name and identity of each; the same machine may occur several times.
    """
    known: dict[str, list[str]] = {}
    names = []
    for host, identity in machines:
        found = known.setdefault(host, [])
        if identity not in found:
            found.append(identity)
        number = found.index(identity) + 1
        names.append(host if number == 1 else f"{host} ({number})")
    return names


def _runs(numbers: list[str]) -> list[str]:
    """Return sorted numbers with one text, "8-15", for those that follow each other."""
    runs: list[list[str]] = []
    for number in numbers:
        # "100" follows "099", and "10" follows "9".
        if runs and number == f"{int(runs[-1][-1]) + 1:0{len(runs[-1][-1])}}":
            runs[-1].append(number)
        else:
            runs.append([number])
    return [text for run in runs for text in ([f"{run[0]}-{run[-1]}"] if len(run) >= _MIN_RANGE else run)]
