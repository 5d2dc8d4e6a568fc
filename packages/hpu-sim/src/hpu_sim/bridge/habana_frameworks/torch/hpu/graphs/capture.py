"""Recording the operators of a stretch of a program, and running them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from habana_frameworks.torch.utils.internal import is_lazy
from hpu_sim.runtime import native

if TYPE_CHECKING:
    from types import TracebackType

_COLLECTIVES: Final = ("c10d", "_c10d_functional")

_capturing: list[HPUGraph] = []


class _Call(NamedTuple):
    """An operator and the tensors that it read and made."""

    operator: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    results: list[torch.Tensor]  # to be filled again; none for an operator that writes its arguments


class _Recorder(TorchDispatchMode):
    """Runs operators and keeps those that work on the card."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # inherited from torch, which annotates none of these
        self.calls: list[_Call] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        options = kwargs or {}
        _refuse(func)
        result = func(*args, **options)
        made = _tensors(result)
        if not any(tensor.device.type == "hpu" for tensor in [*made, *_tensors((args, options))]):
            return result
        if any(tensor.device.type != "hpu" for tensor in made):
            raise RuntimeError(f"{func} gives the host a tensor, which is not supported during hpu graph capturing")
        if _writes(func):
            self.calls.append(_Call(func, args, options, []))
        elif made and not _is_view(func):
            # What makes no tensor asks for a shape, and shapes stay.
            self.calls.append(_Call(func, args, options, made))
        return result


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def _refuse(operator: Any) -> None:
    if operator.namespace in _COLLECTIVES:
        raise RuntimeError("collective nonSFG is not supported during hpu graph capturing")
    if {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(operator.tags):
        raise RuntimeError(f"{operator} depends on data, which is not supported during hpu graph capturing")


def _writes(operator: Any) -> bool:
    return any(a.alias_info is not None and a.alias_info.is_write for a in operator._schema.arguments)  # noqa: SLF001 - the operator's only description


def _is_view(operator: Any) -> bool:
    # A view of a tensor that a replay fills is filled with it.
    return any(value.alias_info is not None for value in operator._schema.returns)  # noqa: SLF001 - as above


class HPUGraph:
    """A stretch of a program that can be run again.

    Raises:
        RuntimeError: In eager mode, which has no graphs.
    """

    def __init__(self) -> None:
        _check_mode("HPUGraph")
        self._recorder: _Recorder | None = None
        self._calls: list[_Call] = []

    def capture_begin(self, dry_run: bool = False) -> None:
        """Record the operators from here on; they run as well, also with ``dry_run``.

        Raises:
            RuntimeError: If a capture is under way.
        """
        del dry_run
        if _capturing:
            raise RuntimeError("a capture is under way; end it with capture_end() before another begins")
        native().mark_step()
        self._recorder = _Recorder()
        self._recorder.__enter__()  # type: ignore[no-untyped-call] # as above
        _capturing.append(self)

    def capture_end(self) -> None:
        """Stop recording.

        Raises:
            RuntimeError: If this graph is not being captured.
        """
        if self._recorder is None:
            raise RuntimeError("this graph is not being captured; begin with capture_begin()")
        self._recorder.__exit__(None, None, None)  # type: ignore[no-untyped-call] # as above
        self._calls = self._recorder.calls
        self._recorder = None
        _capturing.remove(self)
        native().mark_step()

    def replay(self, asynchronous: bool = False) -> None:
        """Run the recorded operators on the tensors of the capture, as one graph.

        Raises:
            RuntimeError: If nothing was captured.
        """
        del asynchronous
        if not self._calls:
            raise RuntimeError("there is nothing to replay; capture operators on hpu tensors first")
        native().mark_step()
        with torch.no_grad():
            for call in self._calls:
                fresh = call.operator(*call.arguments, **call.options)
                for target, source in zip(call.results, _tensors(fresh), strict=False):
                    target.copy_(source)
        native().mark_step()

    def reset(self) -> None:
        """Forget what was captured, and let its tensors go."""
        self._calls = []


class graph:  # noqa: N801 - the bridge's name
    """Context that captures a graph. There is no memory pool to choose, unlike on CUDA.

    Args:
        hpu_graph: The graph to capture into.
        stream: Stream of the capture; it makes no difference.
        dry_run: Handed to :meth:`HPUGraph.capture_begin`.
    """

    def __init__(self, hpu_graph: HPUGraph, stream: Any = None, dry_run: bool = False) -> None:
        _check_mode("graph")
        self.hpu_graph = hpu_graph
        self.stream = stream
        self.dry_run = dry_run

    def __enter__(self) -> None:
        self.hpu_graph.capture_begin(self.dry_run)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hpu_graph.capture_end()


def is_current_stream_capturing() -> bool:
    """Return whether a capture is under way."""
    return bool(_capturing)


def _check_mode(name: str) -> None:
    if not is_lazy():
        raise RuntimeError(f"{name} is available in lazy mode only.")
