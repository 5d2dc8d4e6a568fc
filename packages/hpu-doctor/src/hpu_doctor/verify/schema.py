"""Schema of the report, `report.json`, and of the planner's points, `calibration.json`."""

import json
from typing import Any, Final, Literal, TypedDict, cast, get_args, get_origin, get_type_hints, is_typeddict

SCHEMA: Final = 1

State = Literal["holds", "differs", "not tried"]
_JSON_TYPES: Final = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    type(None): "null",
}
Kind = Literal["matmul", "bandwidth", "launch", "graph_launch", "host_read", "collective"]


class Machine(TypedDict):
    """The machine, without what identifies it: None for what is unknown; `strict` is the simulator's mode."""

    simulated: bool
    strict: bool
    release: str | None
    generation: str | None
    cards: int
    versions: dict[str, str | None]


class Entry(TypedDict):
    """Result of an assumption, with the fields of the register that have no word here.

    Attributes:
        packages: Packages that rely on it.
        state: Whether it holds on this machine.
        expected: Expected value, as text; of a table that differs, only the cases that do.
        seen: Value that the program returned, likewise; None if it has not been tried.
        reason: Why it was not tried, else "".
        means: One sentence per package that a difference concerns; empty unless the state is "differs".
        seconds: Time of the program.
    """

    id: str
    subject: str
    statement: str
    source: str
    claim: str
    packages: list[str]
    state: State
    expected: str
    seen: str | None
    reason: str
    means: dict[str, str]
    seconds: float


class Point(TypedDict, total=False):
    """A measured point for the planner.

    Attributes:
        shape: M, K and N of a product.
        bytes: Size of a copy or of each rank's tensor.
        seconds: Time of one.
        simulated: True if a simulated card was measured; absent otherwise.
    """

    id: str
    kind: Kind
    dtype: str
    shape: list[int]
    bytes: int
    ranks: int
    seconds: float
    simulated: bool


class Report(TypedDict):
    """The report.

    Attributes:
        date: Day of the run, ISO.
        seconds: Time of the run.
        counts: Number of entries by state.
        entries: Results; what a user's job hangs on comes first.
        attachments: Names of the files in the folder `attachments`.
    """

    schema_version: int
    date: str
    seconds: float
    machine: Machine
    counts: dict[State, int]
    entries: list[Entry]
    points: list[Point]
    attachments: list[str]


def parse(text: str) -> Report:
    """Return the report in a text.

    Raises:
        ValueError: The text is no report, or one of another schema; the message says what is wrong.
    """
    try:
        values: Any = json.loads(text)
    except ValueError as error:
        raise ValueError(f"the report must be JSON: {error}") from error
    if isinstance(values, dict) and "schema" in values:
        # As earlier releases wrote it.
        values["schema_version"] = values.pop("schema")
    if not isinstance(values, dict) or "schema_version" not in values:
        raise ValueError(
            "the report must be an object with the key 'schema_version': use the report.json of `hpu-doctor verify`"
        )
    if values["schema_version"] != SCHEMA:
        raise ValueError(f"the report must be of schema {SCHEMA}, got {values['schema_version']!r}")
    _check(values, Report, "the report")
    _check(values["machine"], Machine, "`machine`")
    for index, entry in enumerate(values["entries"]):
        _check(entry, Entry, f"`entries[{index}]`")
    return cast("Report", values)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of the report, for programs in other languages."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_schema_of(Report)}


def _schema_of(kind: Any) -> dict[str, Any]:
    origin, parts = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        properties = {name: _schema_of(part) for name, part in get_type_hints(kind).items()}
        required = sorted(kind.__required_keys__)
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if origin is list:
        return {"type": "array", "items": _schema_of(parts[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(parts[1])}
    if origin is Literal:
        return {"enum": list(parts)}
    # A union, or a type that JSON has.
    return {"anyOf": [_schema_of(part) for part in parts]} if parts else {"type": _JSON_TYPES[kind]}


def _check(values: object, kind: Any, name: str) -> None:
    expected = set(kind.__annotations__)
    found = set(values) if isinstance(values, dict) else set()
    if found != expected:
        raise ValueError(
            f"{name} must have the keys {sorted(expected)}; missing or unknown: {sorted(found ^ expected)}"
        )
