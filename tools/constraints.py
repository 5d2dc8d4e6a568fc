"""Generate the files that follow from compat.toml, or check that they are up to date.

- `constraints/default.txt`: the pins of the sessions and the demo.
- `constraints/gaudi.txt`: SynapseAI releases of which no source names a range of Lightning.
- `constraints/gaudi-<release>.txt`: this release, and the newer ones with the same constraints. torch is never named,
  because it is the image's own, or the stock build on a machine with the simulator.
- `docs/compatibility.md`, and `releases.json` inside the packages that have one.

Usage: `python tools/constraints.py [--check]`; `nox -s constraints` and `nox -s lint` call it.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "compat.toml"

# The fields of a row, in the order of the written files, with their types.
FIELDS: dict[str, type] = {
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

# Two distributions of the same framework with the same versions.
LIGHTNING_NAMES = ("lightning", "pytorch-lightning")
# Folders of the packages with a releases.json.
DATA_FOLDERS = ("hpu-core/src/hpu_core", "hpu-sim/src/hpu_sim/data")

GENERATED = "Generated from compat.toml by `nox -s constraints`; edit that file instead."


class TableError(ValueError):
    """An entry of compat.toml that breaks a rule of the file's header."""


def check_row(row: dict[str, Any], known_sources: set[str]) -> None:
    """Check a release against the rules of compat.toml's header.

    Raises:
        TableError: If a field is unknown, has a wrong type or value, or has no source.
    """
    name = row["release"]
    fields = row.keys() - {"release", "sources", "note"}
    if wrong := (fields ^ row["sources"].keys()) | (fields - FIELDS.keys()):
        raise TableError(f"release {name}: keys must be of {list(FIELDS)}, each with a source; not {sorted(wrong)}")
    for field, codes in row["sources"].items():
        if unknown := set(codes.split()) - known_sources:
            raise TableError(f"release {name}: {field} has the sources {sorted(unknown)}, which [sources] lacks")
    for field in fields:
        value, kind = row[field], FIELDS[field].__name__
        if not isinstance(value, FIELDS[field]):
            raise TableError(f"release {name}: `{field}` must be a {kind}, got {value!r}; leave out what is unknown")
        if field in CHOICES and not CHOICES[field].issuperset(value if isinstance(value, list) else [value]):
            raise TableError(f"release {name}: `{field}` must be of {sorted(CHOICES[field])}, got {value!r}")
    SpecifierSet(row.get("lightning", ""))  # Raises InvalidSpecifier, which is a ValueError too.


def load() -> dict[str, Any]:
    """Read and check the table.

    Raises:
        TableError: If a row breaks a rule, or the simulated release of the default has no row.
    """
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
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
    """Return a Lightning range that excludes the refused versions."""
    versions = SpecifierSet(specifier or "")
    exclusions = [f"!={version}" for version in table["refused"]["lightning"]["versions"] if version in versions]
    return ",".join(([specifier] if specifier else []) + exclusions)


def related_constraints(table: dict[str, Any], torch: str | None, lightnings: Sequence[str] = ()) -> list[str]:
    """Return the constraints that a torch and any of several Lightnings require, each below its reason.

    Args:
        table: The whole table.
        torch: The torch version; None where the image chooses it.
        lightnings: Versions that may be installed.
    """
    lines = []
    for rule in table["companion"]:
        kind = "torch" if "torch" in rule else "lightning"
        versions = lightnings if kind == "lightning" else [torch] if torch else []
        if any(version in SpecifierSet(rule[kind]) for version in versions):
            lines += [f"# {rule['reason']}", rule["constraint"]]
    return lines


def matching_lightnings(table: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """Return the Lightnings of the tests that a row's range includes; none where the range is unknown."""
    versions = [*table["minors"]["lightning"], table["default"]["lightning"]]
    return [version for version in versions if "lightning" in row and version in SpecifierSet(row["lightning"])]


def sharding(table: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """Return what a row's torch and Lightning can shard with, such as "FSDP"; nothing where the torch is unknown."""
    return [
        name
        for name, needed in table["sharding"].items()
        if row.get("torch", "0") in SpecifierSet(needed["torch"])
        # A row without a known range has the newest Lightning.
        and any(
            version in SpecifierSet(needed["lightning"])
            for version in matching_lightnings(table, row) or [table["default"]["lightning"]]
        )
    ]


def version_lines(table: dict[str, Any], torch: str, lightning: str | None) -> list[str]:
    """Return pins of a torch and a Lightning, what they require, and the other default pins."""
    related = related_constraints(table, torch, [lightning] if lightning else [])
    replaced = {Requirement(line).name for line in related if not line.startswith("#")}
    pins = [str(pin) for pin in map(Requirement, table["default"]["pins"]) if pin.name not in replaced]
    names = LIGHTNING_NAMES if lightning else ()
    return [f"torch=={torch}", *(f"{name}=={lightning}" for name in names), *related, *pins]


def default_constraints(table: dict[str, Any]) -> str:
    """Return the constraints of the sessions, the demo and CI."""
    default = table["default"]
    if default["lightning"] not in SpecifierSet(lightning_specifier(table, default["lightning_range"])):
        raise TableError(f"[default] lightning {default['lightning']!r} is outside {default['lightning_range']!r}")
    comment = f"# The default row: torch {default['torch']}, simulating SynapseAI {default['simulates']}."
    return _text([comment, *version_lines(table, default["torch"], default["lightning"])])


def release_lines(table: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """Return a release's constraints, without torch."""
    specifier = lightning_specifier(table, row.get("lightning"))
    lightnings = [f"{name}{specifier}" for name in LIGHTNING_NAMES]
    return [*lightnings, *related_constraints(table, row.get("torch"), matching_lightnings(table, row))]


def release_files(table: dict[str, Any]) -> dict[str, list[str]]:
    """Return the names of the files, each with the releases that it is for: one file for equal constraints."""
    files: dict[tuple[str, ...], list[str]] = {}
    for row in table["release"]:
        files.setdefault(tuple(release_lines(table, row)), []).append(row["release"])
    unknown = tuple(release_lines(table, {}))
    return {
        "gaudi.txt" if lines == unknown else f"gaudi-{releases[0]}.txt": releases for lines, releases in files.items()
    }


def file_of(table: dict[str, Any], release: str) -> str:
    """Return the path of a release's constraints, relative to the root."""
    (name,) = (name for name, releases in release_files(table).items() if release in releases)
    return f"constraints/{name}"


def _text(lines: Sequence[str]) -> str:
    return "\n".join([f"# {GENERATED}", *lines, ""])


def release_data(table: dict[str, Any]) -> str:
    """Return releases.json: every field of every release, null where it is unknown."""
    fields = ("release", *FIELDS, "sources")
    releases = [{field: row.get(field) for field in fields} for row in table["release"]]
    data = {"default": table["default"]["simulates"], "releases": releases}
    return json.dumps(data, indent=1, default=date.isoformat) + "\n"


def compatibility_page(table: dict[str, Any]) -> str:
    """Return the documentation page: a row for each release, newest first; releases with equal facts share one."""
    default = table["default"]
    refused = table["refused"]["lightning"]
    columns = ("torch", "lightning", "deepspeed", "generations", "mode")
    lines = [
        "# SynapseAI releases",
        "",
        f"<!-- {GENERATED} -->",
        "",
        "SynapseAI is Intel's software for Gaudi; `hpu-info` prints the release of a machine. A dash is a fact that no",
        "source names; compat.toml has the sources of each, and notes where they disagree. Nothing was measured on a",
        "card.",
        "",
        "| SynapseAI | torch | Lightning | DeepSpeed | generations | mode | hpu-fsdp | file in constraints/ |",
        "|---|---|---|---|---|---|---|---|",
    ]
    releases: dict[tuple[str, ...], list[str]] = {}
    for row in reversed(table["release"]):
        file = f"`{Path(file_of(table, row['release'])).name}`"
        cells = (*(format_cell(row, field) for field in columns), ", ".join(sharding(table, row)) or "-", file)
        releases.setdefault(cells, []).append(row["release"])
    lines += [f"| **{', '.join(names)}** | {' | '.join(cells)} |" for cells, names in releases.items()]
    lines += [
        "",
        "- `Lightning` is what was published with the release. These packages run with Lightning 2.0 to 2.6 and torch",
        "  2.0 to 2.15. A file in constraints/ names this Lightning and never torch, so the image's own build stays.",
        "- `DeepSpeed` is Intel's fork, which is on no package index. Its branch has the release's number, or the one",
        "  in parentheses.",
        f"- Lightning {' and '.join(refused['versions'])} are refused everywhere: {refused['reason']}.",
        f"- The demo and CI run stock torch {default['torch']} with Lightning {default['lightning']}, and simulate",
        f"  SynapseAI {default['simulates']}. [Tested releases](records/matrix.md) has what else was run.",
    ]
    return "\n".join(lines) + "\n"


def format_cell(row: dict[str, Any], field: str) -> str:
    """Return a cell of the page, a dash where the value is unknown."""
    value = row.get(field)
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(value)
    if field == "deepspeed":
        version, branch = value.partition("+")[0], row["deepspeed_ref"]
        return version if branch == row["release"] else f"{version} ({branch})"
    return f"`{value}`" if field == "lightning" else str(value)


def outputs(table: dict[str, Any], root: Path = ROOT) -> dict[Path, str]:
    """Return the contents of all generated files, by path."""
    constraints = root / "constraints"
    files = {
        constraints / "default.txt": default_constraints(table),
        root / "docs" / "compatibility.md": compatibility_page(table),
    }
    rows = {row["release"]: row for row in table["release"]}
    for name, releases in release_files(table).items():
        comment = f"# SynapseAI {', '.join(releases)}. torch is not named, so that the image's own build stays."
        files[constraints / name] = _text([comment, *release_lines(table, rows[releases[0]])])
    for folder in DATA_FOLDERS:
        files[root / "packages" / folder / "releases.json"] = release_data(table)
    return files


def main(arguments: list[str] | None = None) -> int:
    """Write the files; with `--check` return 1 if one differs, is missing or is not generated any more."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is out of date")
    check = parser.parse_args(arguments).check

    files = outputs(load())
    unused = set((ROOT / "constraints").glob("*.txt")) - files.keys()
    stale = [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in sorted(unused.union(stale)):
        print(f"{'out of date' if check else 'updated'}: {path.relative_to(ROOT)}")
    if check:
        return 1 if stale or unused else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    for path in unused:
        path.unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
