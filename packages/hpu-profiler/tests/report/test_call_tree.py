"""Call trees."""

from collections.abc import Callable

from hpu_profiler.report.call_tree import flame_tree, module_tree, operator_tree, to_lists
from hpu_profiler.trace.model import Trace

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


def test_spans_are_added_up_by_caller(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    """The same operator under another caller is another node."""
    trace = make_trace(
        builder.step(0, 0, 100),
        *(builder.operator("aten::linear", start, 10) for start in (0, 20)),
        *(builder.operator("aten::addmm", start + 1, 6, start + 1) for start in (0, 20, 40)),
        *(builder.device_event("gemm", start + 2, 2, external_id=start + 1) for start in (0, 20, 40)),
    )

    assert to_lists(operator_tree(trace)) == [
        "all",
        26,
        0,
        6,
        [["aten::linear", 20, 2, 4, [["aten::addmm", 12, 2, 4, []]]], ["aten::addmm", 6, 1, 2, []]],
    ]


def test_flame_graph_has_functions(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(
        builder.step(0, 0, 100),
        builder.operator("aten::mm", 20, 10),
        builder.frame("train.py(1): outer", 0, 50),
        builder.frame("train.py(9): inner", 10, 30),
    )

    assert to_lists(flame_tree(trace))[4] == [["train.py(1): outer", 50, 1, 0, [["train.py(9): inner", 30, 1, 0, []]]]]


def test_flame_graph_without_stacks_has_actions_and_operators(
    builder: TraceBuilder, make_trace: Callable[..., Trace]
) -> None:
    trace = make_trace(
        builder.step(0, 0, 100),
        builder.annotation("[pl][profile]run_training_batch", 0, 50),
        builder.operator("aten::mm", 20, 10),
    )

    assert to_lists(flame_tree(trace))[4] == [["run_training_batch", 50, 1, 0, [["aten::mm", 10, 1, 0, []]]]]


def test_modules_have_the_time_on_the_card(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    """A module includes the modules in it."""
    trace = make_trace(
        builder.step(0, 0, 100),
        builder.annotation("[pl][module]torch.nn.modules.container.Sequential: layers", 0, 50),
        builder.annotation("[pl][module]torch.nn.modules.linear.Linear: layers.0", 10, 20),
        builder.operator("aten::addmm", 15, 10, 1),
        builder.device_event("gemm", 16, 7, external_id=1),
    )

    assert to_lists(module_tree(trace))[4] == [["layers (Sequential)", 50, 1, 7, [["layers.0 (Linear)", 20, 1, 7, []]]]]


def test_modules_of_torchs_stacks_are_used_without_annotations(
    builder: TraceBuilder, make_trace: Callable[..., Trace]
) -> None:
    trace = make_trace(builder.step(0, 0, 100), builder.frame("nn.Module: Linear_0", 10, 20))

    assert to_lists(module_tree(trace))[4] == [["Linear_0", 20, 1, 0, []]]


def test_nodes_of_little_time_are_left_out(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(builder.operator("long", 0, 1e6), builder.operator("short", 2e6, 1))

    assert [node[0] for node in to_lists(operator_tree(trace))[4]] == ["long"]
