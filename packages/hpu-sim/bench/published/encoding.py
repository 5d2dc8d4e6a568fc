"""Recorded step as compact JSON, so that a model of time can be fitted without recording again."""

from __future__ import annotations

from typing import Any, get_args

from hpu_sim.prediction.recording import Collective, Operation, Phase, Product, StepRecording

_PHASES = get_args(Phase)


def to_json(step: StepRecording) -> dict[str, Any]:
    """Return what the model of time reads of a step: no memory, and modules without their names."""
    names: dict[str, int] = {}
    storages: dict[int, int] = {}

    def number(known: dict[Any, int], key: Any) -> int:
        return known.setdefault(key, len(known))

    def accesses(pairs: tuple[tuple[int, int], ...]) -> list[list[int]]:
        return [[number(storages, storage), size] for storage, size in pairs]

    operations = [
        [
            number(names, f"{each.name} {each.dtype}"), _PHASES.index(each.phase), each.flops, 0,
            accesses(each.reads), accesses(each.writes), list(each.waits_for), int(each.host_sync),
            int(each.is_launched), each.products, each.rows,
        ]
        for each in step.operations
    ]  # fmt: skip
    collectives = [
        [each.name, _PHASES.index(each.phase), each.bytes, each.total_bytes, len(each.ranks), int(each.is_async),
         each.after]
        for each in step.collectives
    ]  # fmt: skip
    return {
        "names": list(names),
        "operations": operations,
        "collectives": collectives,
        "graph_ends": step.graph_ends,
    }


def from_json(data: dict[str, Any]) -> StepRecording:
    """Return the step that :func:`to_json` encoded; its collectives are those of the first ranks."""
    names = [name.rpartition(" ") for name in data["names"]]
    operations = [
        Operation(
            names[name][0], _PHASES[phase], "", names[name][2], flops, tuple(Product(*each) for each in products),
            tuple((storage, size) for storage, size in reads), tuple((storage, size) for storage, size in writes),
            0, tuple(waits), host_sync=bool(sync), is_launched=bool(launched), rows=tuple(rows),
        )
        for name, phase, flops, _, reads, writes, waits, sync, launched, products, rows in data["operations"]
    ]  # fmt: skip
    collectives = [
        Collective(name, _PHASES[phase], size, total, tuple(range(ranks)), bool(is_async), after)
        for name, phase, size, total, ranks, is_async, after in data["collectives"]
    ]
    return StepRecording(operations, collectives, graph_ends=list(data["graph_ends"]))
