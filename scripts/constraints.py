"""Generate everything that follows from compat.toml, or check that it is up to date.

Written are `constraints/default.txt` (what the sessions and the demo pin), `constraints/sim-<release>.txt` (a machine
with the simulator), `constraints/gaudi-<release>.txt` (a machine with cards, where torch is the image's own and is
therefore never named), `constraints/torch-<version>.txt` and `constraints/lightning-<version>.txt` (the sessions' pins
for each torch that the simulator and each Lightning that the packages are tested with), `docs/compatibility.md`, and
`releases.json` inside each package that carries one.

Usage: `python scripts/constraints.py [--check]`; `nox -s constraints` and `nox -s lint` call it.
"""

from __future__ import annotations

import argparse
import json
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "compat.toml"

# The facts of a row in the order in which they are written, with the type that each must have.
FACTS: dict[str, type] = {
    "build": str,
    "date": date,
    "torch": str,
    "python": list,
    "lightning": str,
    "lightning_habana": list,
    "deepspeed": str,
    "deepspeed_ref": str,
    "hmp": bool,
    "mode": str,
    "generations": list,
}
CHOICES = {"mode": {"lazy", "eager"}, "generations": {"GAUDI", "GAUDI2", "GAUDI3"}}

# Both distributions of the same framework carry the same version.
LIGHTNING_NAMES = ("lightning", "pytorch-lightning")
# Packages that carry the release data.
CARRIERS = ("hpu-core", "hpu-sim")

DEEPSPEED_FORK = "https://github.com/HabanaAI/DeepSpeed"

GENERATED = "Generated from compat.toml by `nox -s constraints`; edit that file instead."


class TableError(ValueError):
    """compat.toml breaks a rule of its own header."""


def check_row(row: dict[str, Any], known_sources: set[str]) -> None:
    """Check one release against the rules in compat.toml's header.

    Args:
        row: One `[[release]]` table.
        known_sources: The codes of `[sources]`.

    Raises:
        TableError: If a fact is unknown to this script, has the wrong type or value, or lacks a source.
    """
    name = row["release"]
    facts = row.keys() - {"release", "sources", "note"}
    if unknown := facts - FACTS.keys():
        raise TableError(f"release {name}: unknown keys {sorted(unknown)}; known are {list(FACTS)}")
    if facts != row["sources"].keys():
        raise TableError(
            f"release {name}: `sources` must name exactly the facts of the row; "
            f"these differ: {sorted(facts ^ row['sources'].keys())}"
        )
    for fact, codes in row["sources"].items():
        if strangers := set(codes.split()) - known_sources:
            raise TableError(f"release {name}: {fact} has the sources {sorted(strangers)}, which [sources] lacks")
    for fact in facts:
        value = row[fact]
        if not isinstance(value, FACTS[fact]):
            raise TableError(
                f"release {name}: `{fact}` must be a {FACTS[fact].__name__}, got {value!r}; leave out what is unknown"
            )
        if fact in CHOICES and not CHOICES[fact].issuperset(value if isinstance(value, list) else [value]):
            raise TableError(f"release {name}: `{fact}` must be of {sorted(CHOICES[fact])}, got {value!r}")
    SpecifierSet(row.get("lightning", ""))  # Raises InvalidSpecifier, which is a ValueError too.


def load(path: Path = TABLE) -> dict[str, Any]:
    """Read and check the table.

    Args:
        path: A compat.toml.

    Returns:
        The parsed file, releases oldest version first.

    Raises:
        TableError: If a row breaks a rule, or the default simulates a release without a row.
    """
    table: dict[str, Any] = tomli.loads(path.read_text(encoding="utf-8"))
    for row in table["release"]:
        check_row(row, set(table["sources"]))
    table["release"].sort(key=lambda row: Version(row["release"]))
    names = [row["release"] for row in table["release"]]
    if len(names) != len(set(names)):
        raise TableError(f"a release has two rows: {names}")
    if table["default"]["simulates"] not in names:
        raise TableError(f"[default] simulates {table['default']['simulates']!r}, which has no row")
    return table


def lightning_specifier(table: dict[str, Any], specifier: str | None) -> str:
    """Give a Lightning range with the refused releases cut out of it.

    Args:
        table: The whole table.
        specifier: A row's range, or None where it is unknown.

    Returns:
        The range, with a hole for each refused version that it would admit; holes alone where it is unknown.
    """
    wanted = SpecifierSet(specifier or "")
    holes = [f"!={version}" for version in table["refused"]["lightning"]["versions"] if version in wanted]
    return ",".join(([specifier] if specifier else []) + holes)


def companions(table: dict[str, Any], torch: str | None, lightnings: Sequence[str] = ()) -> list[str]:
    """Give the constraints that a torch and any of several Lightnings bring with them, each below its reason.

    Args:
        table: The whole table.
        torch: Its version; None where it is not for us to choose.
        lightnings: Versions that may be installed.
    """
    lines = []
    for rule in table["companion"]:
        kind = "torch" if "torch" in rule else "lightning"
        versions = lightnings if kind == "lightning" else [torch] if torch else []
        if any(version in SpecifierSet(rule[kind]) for version in versions):
            lines += [f"# {rule['reason']}", rule["constraint"]]
    return lines


def known_lightnings(table: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """Give the Lightnings that the packages are tested with and a row's range admits; none where it is unknown."""
    tested = [*table["minors"]["lightning"], table["default"]["lightning"]]
    return [version for version in tested if "lightning" in row and version in SpecifierSet(row["lightning"])]


def others(table: dict[str, Any], brought: list[str]) -> list[str]:
    """Give the default's pins of everything that companions do not constrain."""
    replaced = {Requirement(line).name for line in brought if not line.startswith("#")}
    return [str(pin) for pin in map(Requirement, table["default"]["pins"]) if pin.name not in replaced]


def default_constraints(table: dict[str, Any]) -> str:
    """Write what the sessions, the demo and CI install."""
    default = table["default"]
    if default["lightning"] not in SpecifierSet(lightning_specifier(table, default["lightning_range"])):
        raise TableError(f"[default] lightning {default['lightning']!r} is outside {default['lightning_range']!r}")
    lines = [
        f"# {GENERATED}",
        f"# The default row: torch {default['torch']}, simulating SynapseAI {default['simulates']}.",
        f"torch=={default['torch']}",
        *(f"{name}=={default['lightning']}" for name in LIGHTNING_NAMES),
        *companions(table, default["torch"]),
        *(str(Requirement(pin)) for pin in default["pins"]),
    ]
    return "\n".join(lines) + "\n"


def varied_constraints(table: dict[str, Any], *, torch: str | None = None, lightning: str | None = None) -> str:
    """Write what a session installs that tests with another torch or another Lightning than the default.

    Args:
        table: The whole table.
        torch: The torch, the default's if None.
        lightning: The Lightning; if None, none is named, because it is the simulator that is tested.
    """
    torch = torch or table["default"]["torch"]
    purpose = (
        f"torch {torch}, for which the simulated device is built and tested."
        if lightning is None
        else f"Lightning {lightning} on the default torch, with which what Lightning decides is tested."
    )
    brought = companions(table, torch, [lightning] if lightning else [])
    lines = [
        f"# {GENERATED}",
        f"# {purpose}",
        f"torch=={torch}",
        *(f"{name}=={lightning}" for name in LIGHTNING_NAMES if lightning is not None),
        *brought,
        *others(table, brought),
    ]
    return "\n".join(lines) + "\n"


def sim_constraints(table: dict[str, Any], row: dict[str, Any]) -> str:
    """Write what fits a release on a machine with the simulator: stock torch of the release's version."""
    lines = [
        f"# {GENERATED}",
        f"# SynapseAI {row['release']} on the simulator: stock torch, HPU_SIM_RELEASE={row['release']}.",
        f"torch=={row['torch']}",
        *lightning_lines(table, row),
        *companions(table, row["torch"], known_lightnings(table, row)),
    ]
    return "\n".join(lines) + "\n"


def gaudi_constraints(table: dict[str, Any], row: dict[str, Any]) -> str:
    """Write what fits a release on a Gaudi image, whose torch must stay: it is not named, so it is not replaced."""
    lines = [
        f"# {GENERATED}",
        f"# SynapseAI {row['release']} on a machine with cards. torch is the image's own and is not named here.",
        *lightning_lines(table, row),
        *companions(table, None, known_lightnings(table, row)),
    ]
    if "deepspeed" in row:
        lines += [
            f"# The vendor's fork: {DEEPSPEED_FORK}, ref {row['deepspeed_ref']}.",
            f"deepspeed=={row['deepspeed']}",
        ]
    return "\n".join(lines) + "\n"


def lightning_lines(table: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """Give a row's Lightning constraint for both distributions of the framework."""
    specifier = lightning_specifier(table, row.get("lightning"))
    return [f"{name}{specifier}" for name in LIGHTNING_NAMES]


def release_data(table: dict[str, Any]) -> str:
    """Write the JSON that packages carry: every fact of every release, null where it is unknown."""
    releases = []
    for row in table["release"]:
        record: dict[str, Any] = {"release": row["release"], **{fact: row.get(fact) for fact in FACTS}}
        record["sources"] = row["sources"]
        releases.append(record)
    data = {"default": table["default"]["simulates"], "releases": releases}
    return json.dumps(data, indent=1, default=date.isoformat) + "\n"


def compatibility_page(table: dict[str, Any]) -> str:
    """Write the documentation page: the table, where sources disagree, and the sources."""
    default = table["default"]
    refused = table["refused"]["lightning"]
    columns = ["release", *(fact for fact in FACTS if fact != "deepspeed_ref"), "known from"]
    lines = [
        "# SynapseAI releases and what fits them",
        "",
        f"<!-- {GENERATED} -->",
        "",
        "One row per release, oldest version first. A dash is a fact that no source names. Nothing was measured",
        "here on a card: every fact comes from the sources below. `lightning` spans what those sources name.",
        f"Lightning {' and '.join(refused['versions'])} are refused everywhere: {refused['reason']}.",
        "",
        f"Development, the demo and CI run stock torch {default['torch']} with Lightning {default['lightning']}",
        f"and simulate SynapseAI {default['simulates']}.",
        f"The simulated device is built and tested with torch {', '.join(table['simulator']['torch'])};",
        f"the packages are tested with Lightning {', '.join(table['minors']['lightning'])}, too.",
        "[What has been run](matrix.md) says on which releases all their tests have been run.",
        "",
        "| " + " | ".join(columns).replace("_", "-") + " |",
        "|" + "---|" * len(columns),
    ]
    for row in table["release"]:
        cells = [f"**{row['release']}**", *(cell(row, fact) for fact in columns[1:-1])]
        codes = sorted({code for value in row["sources"].values() for code in value.split()})
        lines.append("| " + " | ".join([*cells, " ".join(codes)]) + " |")
    lines += ["", "## Notes", ""]
    lines += [f"- **{row['release']}**: {row['note']}" for row in table["release"] if "note" in row]
    lines += ["", "## Sources", "", "compat.toml names the sources of each fact.", "", "| code | what |", "|---|---|"]
    lines += [f"| {code} | {what} |" for code, what in table["sources"].items()]
    return "\n".join(lines) + "\n"


def cell(row: dict[str, Any], fact: str) -> str:
    """Give one cell of the page, a dash where the fact is unknown."""
    value = row.get(fact)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value)
    return f"`{value}`" if fact in {"lightning", "deepspeed"} else str(value)


def outputs(table: dict[str, Any], root: Path = ROOT) -> dict[Path, str]:
    """Give every generated file with its contents.

    Args:
        table: The whole table.
        root: The repository.

    Returns:
        File contents by path.
    """
    constraints = root / "constraints"
    files = {
        constraints / "default.txt": default_constraints(table),
        root / "docs" / "compatibility.md": compatibility_page(table),
    }
    for row in table["release"]:
        files[constraints / f"gaudi-{row['release']}.txt"] = gaudi_constraints(table, row)
        if "torch" in row:
            files[constraints / f"sim-{row['release']}.txt"] = sim_constraints(table, row)
    for lightning in table["minors"]["lightning"]:
        files[constraints / f"lightning-{lightning}.txt"] = varied_constraints(table, lightning=lightning)
    for torch in table["simulator"]["torch"]:
        files[constraints / f"torch-{torch}.txt"] = varied_constraints(table, torch=torch)
    for package in CARRIERS:
        source = root / "packages" / package / "src" / package.replace("-", "_")
        files[source / "releases.json"] = release_data(table)
    return files


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or with `--check` only compare them.

    Args:
        arguments: The command line, `sys.argv[1:]` if None.

    Returns:
        0, or 1 when `--check` found a file that differs, is missing or should not be there.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is out of date")
    check = parser.parse_args(arguments).check

    files = outputs(load())
    orphans = set((ROOT / "constraints").glob("*.txt")) - files.keys()
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in sorted(orphans.union(stale)):
        print(f"{'out of date' if check else 'updated'}: {path.relative_to(ROOT)}")
    if check:
        return 1 if stale or orphans else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    for path in orphans:
        path.unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
