"""Call trees: nested spans summed by name and caller, for flame graphs and trees of operators and modules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hpu_profiler.trace.call_stack import group_by_thread, innermost_spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hpu_profiler.trace.model import HostSpan, Operator, Trace

__all__ = ["Node", "flame_tree", "module_tree", "operator_tree", "to_lists"]

#: Part of the whole below which a node is left out.
_MIN_FRACTION: Final = 0.0005
_MAX_DEPTH: Final = 80
_MODULE_PREFIX: Final = "[pl][module]"
_TORCH_MODULE_PREFIX: Final = "nn.Module: "


@dataclass(slots=True)
class Node:
    """Spans of one name under one caller.

    Attributes:
        name: Name of the spans.
        time: Sum of their durations, in microseconds.
        calls: Number of spans.
        device_time: Time of the device events that they launched.
        children: Callees by name.
    """

    name: str
    time: float = 0.0
    calls: int = 0
    device_time: float = 0.0
    children: dict[str, Node] = field(default_factory=dict)


def flame_tree(trace: Trace) -> Node:
    """Return the Python functions of the thread that runs the steps; without stacks, its annotations and operators."""
    if trace.frames:
        return _tree(_on_step_thread(trace, trace.frames), trace, lambda name: name)
    return _tree(_on_step_thread(trace, [*trace.spans, *trace.operators]), trace, _short_name)


def operator_tree(trace: Trace) -> Node:
    """Return the annotations and operators of all threads."""
    threads = {operator.thread for operator in trace.operators}
    spans = [span for span in trace.spans if span.thread in threads]
    return _tree([*spans, *trace.operators], trace, _short_name)


def module_tree(trace: Trace) -> Node:
    """Return the modules of the thread that runs the steps, from Lightning's annotations or from torch's stacks."""
    spans = [span for span in trace.spans if span.name.startswith(_MODULE_PREFIX)]
    modules = spans or [frame for frame in trace.frames if frame.name.startswith(_TORCH_MODULE_PREFIX)]
    return _tree(_on_step_thread(trace, modules), trace, _module_name)


def to_lists(node: Node) -> list[Any]:
    """Return a tree as nested lists of name, time, calls, device time and children, longest first."""
    limit = _MIN_FRACTION * sum(child.time for child in node.children.values())

    def convert(node: Node, depth: int) -> list[Any]:
        children = sorted(node.children.values(), key=lambda each: -each.time) if depth < _MAX_DEPTH else []
        kept = [convert(each, depth + 1) for each in children if each.time >= limit]
        return [node.name, round(node.time, 1), node.calls, round(node.device_time, 1), kept]

    return convert(node, 0)


def _on_step_thread(trace: Trace, spans: Iterable[HostSpan]) -> list[HostSpan]:
    return [span for span in spans if span.thread == trace.step_thread]


def _tree(spans: list[HostSpan], trace: Trace, rename: Callable[[str], str]) -> Node:
    """Return the tree of nested spans; device events count for the innermost span that launched them."""
    root = Node("all")
    nodes: dict[int, list[Node]] = {}
    for stack_spans in group_by_thread(spans).values():
        stack: list[tuple[float, list[Node]]] = [(float("inf"), [root])]
        for span in stack_spans:
            while stack[-1][0] <= span.start:
                stack.pop()
            name = rename(span.name)
            path = stack[-1][1]
            node = path[-1].children.setdefault(name, Node(name))
            node.time += span.duration
            node.calls += 1
            nodes[id(span)] = [*path, node]
            stack.append((span.end, nodes[id(span)]))
    _add_device_times(spans, trace, nodes)
    root.time = sum(child.time for child in root.children.values())
    return root


def _add_device_times(spans: list[HostSpan], trace: Trace, nodes: dict[int, list[Node]]) -> None:
    launched = sorted(
        ((event.operator, event.duration) for event in trace.device_events if event.operator is not None),
        key=lambda pair: pair[0].start,
    )
    by_thread: dict[int, list[tuple[Operator, float]]] = {}
    for operator, duration in launched:
        by_thread.setdefault(operator.thread, []).append((operator, duration))
    for thread, stack_spans in group_by_thread(spans).items():
        pairs = by_thread.get(thread, [])
        callers = innermost_spans(stack_spans, (operator.start for operator, _ in pairs))
        for caller, (_, duration) in zip(callers, pairs, strict=True):
            for node in nodes[id(caller)] if caller is not None else ():
                node.device_time += duration


def _short_name(name: str) -> str:
    return name.removeprefix("[pl][profile]")


def _module_name(name: str) -> str:
    if name.startswith(_TORCH_MODULE_PREFIX):
        return name.removeprefix(_TORCH_MODULE_PREFIX)
    kind, _, path = name.removeprefix(_MODULE_PREFIX).rpartition(": ")
    return f"{path} ({kind.rpartition('.')[2]})"
