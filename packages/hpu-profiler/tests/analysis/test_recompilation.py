"""Steps with new shapes."""

from hpu_profiler.analysis.recompilation import new_shapes

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


def test_shape_of_an_earlier_step_is_not_new(builder: TraceBuilder) -> None:
    """The first step has only new shapes, and the third one returns to those of the first."""
    trace = builder.trace(
        *(builder.step(index, 10 * index, 10) for index in range(4)),
        *(builder.operator("mm", 10 * index + 1, 2, shapes=[[size]]) for index, size in enumerate((4, 5, 4, 6))),
    )

    shapes = new_shapes(trace)

    assert shapes.steps == 2
    assert [operator.shapes for operator in shapes.operators] == ["[[5]]"]


def test_other_threads_are_left_out(builder: TraceBuilder) -> None:
    """The backward pass repeats the shapes of the forward pass."""
    trace = builder.trace(
        *(builder.step(index, 10 * index, 10) for index in range(2)),
        *(builder.operator("mm", 10 * index + 1, 2, shapes=[[index]], thread=8) for index in range(2)),
    )

    assert new_shapes(trace).steps == 0
