"""Media pipe: graph, build, and batches ahead of the program."""

from __future__ import annotations

import collections
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from habana_frameworks.mediapipe.backend import graph
from habana_frameworks.mediapipe.backend.nodes import Node, Pipe, TensorNode
from habana_frameworks.mediapipe.backend.tensor import CPUTensor, HPUTensor

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MediaPipe"]

_DEVICES: Final = ("cpu", "mixed", "legacy")


class MediaPipe(ABC):
    """Pipe of media operators.

    Args:
        device: "cpu", "mixed" or "legacy"; anything else is "legacy", with a warning.
        prefetch_depth: Batches that are prepared ahead.
        batch_size: Images per batch.
        num_threads: Threads of the host.
        pipe_name: Name for messages.

    Raises:
        ValueError: `num_threads` is not an int.
    """

    # Framework of the process, whose second kind is an error.
    _framework: ClassVar[str | None] = None

    def __init__(
        self,
        device: str | None = None,
        prefetch_depth: int = 2,
        batch_size: int = 1,
        num_threads: int = 1,
        pipe_name: str | None = None,
    ) -> None:
        if not isinstance(num_threads, int):
            raise ValueError(f"`num_threads` must be an int, got {num_threads!r}")  # noqa: TRY004 - the vendor's class
        if device not in _DEVICES:
            sys.stderr.write(f"Warning!!! device {device!r} is deprecated, using 'legacy'\n")
            device = "legacy"
        self._device: str = device
        self._prefetch_depth, self._batch_size = prefetch_depth, batch_size
        self._name = pipe_name or type(self).__name__
        self._proxy: Any = None
        self._repeats = self._left = 1
        self._nodes: list[Node] | None = None
        self._outputs: list[TensorNode] = []
        self._computations: dict[Node, Any] = {}
        self._iterators: dict[Node, Iterator[Any]] | None = None
        self._ready: collections.deque[list[Any]] = collections.deque()

    @abstractmethod
    def definegraph(self) -> Any:
        """Return the output of the graph, or a list or tuple of outputs."""

    def set_proxy(self, fw_type: str, proxy: Any) -> None:
        """Set the framework that allocates outputs, the same in the whole process.

        Raises:
            RuntimeError: The process has another framework's.
        """
        if MediaPipe._framework not in {None, fw_type}:
            raise RuntimeError("A different framework already initialized")
        MediaPipe._framework = fw_type
        self._proxy = proxy

    def set_repeat_count(self, count: int) -> None:
        """Set how often the readers are read in an epoch; -1 for endlessly."""
        self._repeats = count

    def build(self) -> None:
        """Make the graph, unless it is made.

        Raises:
            ValueError: The order of nodes is invalid.
            RuntimeError: A node's device is not one of the pipe's.
        """
        if self._nodes is not None:
            return
        outputs = self.definegraph()
        self._outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        nodes = graph.ordered_nodes(self._outputs)
        graph.validate(nodes, self._outputs, self._device)
        pipe = Pipe(self._batch_size, is_legacy=self._device == "legacy")
        self._computations = {node: node.operator.make(node.parameters, pipe) for node in nodes}
        self._nodes = nodes

    def get_batch_count(self) -> int:
        """Return the number of batches of an epoch of this slice."""
        self.build()
        return min(len(self._computations[node]) for node in self._nodes or () if node.kind == "reader")

    def iter_init(self) -> None:
        """Begin an epoch: drop what was prepared, and prepare the first batches.

        Raises:
            RuntimeError: The pipe is not built.
        """
        if self._nodes is None:
            raise RuntimeError(f"`build` must be called before `iter_init` of {self._name}")
        self._ready.clear()
        self._left = self._repeats
        self._iterate_readers()
        for _ in range(self._prefetch_depth):
            self._prepare()

    def run(self) -> list[Any]:
        """Return a batch: a tensor per output.

        Raises:
            RuntimeError: No epoch has begun.
            StopIteration: The epoch has ended.
        """
        if self._iterators is None:
            raise RuntimeError(f"`iter_init` must be called before `run` of {self._name}")
        if not self._ready:
            raise StopIteration
        batch = self._ready.popleft()
        self._prepare()
        return batch

    def as_iterator(self) -> Iterator[Any] | None:
        """Return an iterator of batches; None, with a message, where a framework is set."""
        if self._proxy is not None:
            sys.stdout.write("as_iterator is not supported with a framework proxy\n")
            return None
        return self._batches()

    def del_iter(self) -> None:
        """Release the pipe's buffers."""
        self._ready.clear()
        self._iterators = None

    def __del__(self) -> None:
        if hasattr(self, "_ready"):
            self.del_iter()

    def _batches(self) -> Iterator[Any]:
        self.build()
        self.iter_init()
        while self._ready:
            yield self.run()

    def _iterate_readers(self) -> None:
        self._iterators = {node: iter(self._computations[node]) for node in self._nodes or () if node.kind == "reader"}

    def _prepare(self) -> None:
        """Compute the next batch, if there is one."""
        if self._left == 0:
            return
        try:
            values = self._compute()
        except StopIteration:
            self._left = max(self._left - 1, -1)
            if self._left == 0:
                return
            self._iterate_readers()
            values = self._compute()
        self._ready.append([self._output(tensor, values) for tensor in self._outputs])

    def _compute(self) -> dict[Node, Any]:
        values: dict[Node, Any] = {}
        for node in self._nodes or ():
            inputs = {name: values[tensor.node][tensor.index] for name, tensor in node.inputs.items()}
            is_reader, compute = node.kind == "reader", self._computations[node]
            result = next((self._iterators or {})[node]) if is_reader else compute(**inputs)
            values[node] = result if isinstance(result, tuple) else (result,)
        return values

    def _output(self, tensor: TensorNode, values: dict[Node, Any]) -> Any:
        array = np.ascontiguousarray(values[tensor.node][tensor.index])
        # A legacy pipe copies what its readers and the host return to the card.
        is_on_hpu = tensor.is_on_hpu or self._device == "legacy"
        if self._proxy is not None:
            name = tensor.node.parameters["dtype"] if tensor.node.kind != "reader" else None
            return self._proxy.new_tensor(array, name or array.dtype.name, is_on_hpu=is_on_hpu)
        return HPUTensor(array) if is_on_hpu else CPUTensor(array)
