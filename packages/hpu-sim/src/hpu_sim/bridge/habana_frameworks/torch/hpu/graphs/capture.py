"""Capture and replay of operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from habana_frameworks.torch.utils.internal import is_lazy
from hpu_sim.device.runtime import native

if TYPE_CHECKING:
    from types import TracebackType

_COLLECTIVES: Final = ("c10d", "_c10d_functional")

_capturing: list[HPUGraph] = []


class _Call(NamedTuple):
    """Captured call of an operator."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[torch.Tensor]  # filled by a replay; empty for an operator that writes to its arguments


class _Recorder(TorchDispatchMode):
    """Dispatch mode that runs operators and records those on the device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no annotations here
        self.calls: list[_Call] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        _raise_if_unsupported(func)
        result = func(*args, **kwargs)
        outputs = tensors_in(result)
        if not any(tensor.device.type == "hpu" for tensor in [*outputs, *tensors_in((args, kwargs))]):
            return result
        if any(tensor.device.type != "hpu" for tensor in outputs):
            raise RuntimeError(f"{func} returns a CPU tensor, which is not supported during hpu graph capturing")
        if _is_mutating(func):
            self.calls.append(_Call(func, args, kwargs, []))
        elif outputs and not _is_view(func):
            # An operator without tensor outputs queries a shape, which a replay does not change.
            self.calls.append(_Call(func, args, kwargs, outputs))
        return result


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in containers of arguments or results."""
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def _raise_if_unsupported(operator: Any) -> None:
    if operator.namespace in _COLLECTIVES:
        raise RuntimeError("collective nonSFG is not supported during hpu graph capturing")
    if {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(operator.tags):
        raise RuntimeError(f"{operator} has data-dependent results, which are not supported during hpu graph capturing")


def _is_mutating(operator: Any) -> bool:
    return any(a.alias_info is not None and a.alias_info.is_write for a in operator._schema.arguments)  # noqa: SLF001 - the only description of an operator


def _is_view(operator: Any) -> bool:
    # A replay that fills a tensor fills its views too.
    return any(value.alias_info is not None for value in operator._schema.returns)  # noqa: SLF001 - as above


class HPUGraph:
    """Captured operators that can be replayed.

    Raises:
        RuntimeError: In eager mode, which has no graphs.
    """

    def __init__(self) -> None:
        _check_mode("HPUGraph")
        self._recorder: _Recorder | None = None
        self._calls: list[_Call] = []

    def capture_begin(self, dry_run: bool = False) -> None:
        """Start a capture. Operators run as well, even with ``dry_run``.

        Raises:
            RuntimeError: If another capture is active.
        """
        del dry_run
        if _capturing:
            raise RuntimeError("another capture is active; call capture_end() first")
        native().mark_step()
        self._recorder = _Recorder()
        self._recorder.__enter__()  # type: ignore[no-untyped-call] # as above
        _capturing.append(self)
        native().set_capturing(True)

    def capture_end(self) -> None:
        """End the capture.

        Raises:
            RuntimeError: If the capture has not started.
        """
        if self._recorder is None:
            raise RuntimeError("this graph has no active capture; call capture_begin() first")
        self._recorder.__exit__(None, None, None)  # type: ignore[no-untyped-call] # as above
        self._calls = self._recorder.calls
        self._recorder = None
        _capturing.remove(self)
        native().set_capturing(False)
        native().mark_step()

    def replay(self, asynchronous: bool = False) -> None:
        """Run the captured operators on the tensors of the capture, as one graph.

        Raises:
            RuntimeError: If the capture is empty.
        """
        del asynchronous
        if not self._calls:
            raise RuntimeError("there is nothing to replay; capture operators on hpu tensors first")
        native().mark_step()
        with torch.no_grad():
            for call in self._calls:
                result = call.operator(*call.args, **call.kwargs)
                for target, source in zip(call.outputs, tensors_in(result), strict=False):
                    target.copy_(source)
        native().mark_step()

    def reset(self) -> None:
        """Drop the captured operators and their tensors."""
        self._calls = []


class graph:  # noqa: N801 - the bridge's name
    """Context manager that captures a graph. Unlike CUDA's, it has no memory pool.

    Args:
        hpu_graph: The graph to capture into.
        stream: Ignored.
        dry_run: Argument of :meth:`HPUGraph.capture_begin`.
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
    """Return whether a capture is active."""
    return bool(_capturing)


def _check_mode(name: str) -> None:
    if not is_lazy():
        raise RuntimeError(f"{name} is available in lazy mode only.")
