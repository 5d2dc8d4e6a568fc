"""HPU graphs of forward and backward passes, one per set of input shapes, for training."""

from __future__ import annotations

import copy
import logging
from collections import Counter, OrderedDict
from typing import Any

import torch

from habana_frameworks.torch.hpu.graphs.callables import CapturedCall
from habana_frameworks.torch.hpu.graphs.inputs import input_hash

_logger = logging.getLogger(__name__)


class ModuleCacher:
    """Wrapper of models that captures an HPU graph per set of input shapes.

    Args:
        max_graphs: Largest number of graphs to keep.
    """

    def __init__(self, max_graphs: int = 10) -> None:
        self._max_graphs = max_graphs
        self._iteration = 0
        self._graphs: OrderedDict[int, CapturedCall] = OrderedDict()
        self._uses: Counter[int] = Counter()

    def __call__(  # noqa: PLR0913, PLR0917 - the bridge's signature
        self,
        model: torch.nn.Module,
        use_lfu: bool = False,
        inplace: bool = True,
        allow_unused_input: bool = False,
        asynchronous: bool = False,
        have_grad_accumulation: bool = False,
        log_frequency: int = 100,
        verbose: bool = False,
        disable_tensor_cache: bool = False,
        dry_run: bool = False,
    ) -> torch.nn.Module:
        """Return a model that captures and replays its passes.

        ``use_lfu`` evicts the least frequently used graph instead of the least recently used one. ``inplace`` changes
        the model itself instead of a copy that shares its parameters. ``have_grad_accumulation`` copies gradients out
        of the tensors of the capture, where the next replay overwrites them. ``asynchronous``, ``disable_tensor_cache``
        and ``dry_run`` have no effect, as in ``wrap_in_hpu_graph``.
        """
        del asynchronous, disable_tensor_cache, dry_run
        target = model if inplace else copy.copy(model)
        run = model.forward
        parameters = list(model.parameters())

        def forward(*args: Any, **kwargs: Any) -> Any:
            self._iteration += 1
            if verbose and self._iteration % log_frequency == 0:
                _logger.info("iteration %d: %d graphs (simulated)", self._iteration, len(self._graphs))
            key = input_hash((args, kwargs, model.training, torch.is_grad_enabled()))
            if key not in self._graphs:
                self._drop_graphs(use_lfu)
                self._graphs[key] = CapturedCall(
                    run,
                    (args, kwargs),
                    parameters,
                    allow_unused_input=allow_unused_input,
                    copy_gradients=have_grad_accumulation,
                )
            self._uses[key] += 1
            self._graphs.move_to_end(key)
            return self._graphs[key]((args, kwargs))

        target.forward = forward
        return target

    def _drop_graphs(self, use_lfu: bool) -> None:
        while len(self._graphs) >= self._max_graphs:
            least_recent = next(iter(self._graphs))
            key = min(self._graphs, key=lambda key: self._uses[key]) if use_lfu else least_recent
            del self._graphs[key]
