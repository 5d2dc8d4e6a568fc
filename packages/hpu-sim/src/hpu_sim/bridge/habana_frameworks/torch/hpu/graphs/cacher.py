"""A model that replays its training step's forward and backward passes, captured once per set of input shapes."""

from __future__ import annotations

import copy
import logging
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from habana_frameworks.torch.hpu.graphs.callables import GraphedCall
from habana_frameworks.torch.hpu.graphs.inputs import input_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_logger = logging.getLogger(__name__)


class ModuleCacher:
    """Gives a model captured passes for the shapes that it meets.

    Args:
        max_graphs: The most shapes to keep.
    """

    def __init__(self, max_graphs: int = 10) -> None:
        self._max_graphs = max_graphs
        self._iteration = 0
        self._graphs: OrderedDict[int, GraphedCall] = OrderedDict()
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
        """Return a model with cached passes.

        Args:
            model: The model.
            use_lfu: Whether the shapes that are used least often make room for new ones, rather than those that were
                not used for longest.
            inplace: Whether the model itself is changed, or a copy that shares its parameters.
            allow_unused_input: Whether an input or parameter may have no gradient.
            asynchronous: Accepted; a simulated replay always ends before it returns.
            have_grad_accumulation: Accepted; gradients add up as without graphs.
            log_frequency: Calls between two lines of the log.
            verbose: Whether there is a log.
            disable_tensor_cache: Accepted; the tensors of a capture are always kept.
            dry_run: Accepted; a capture always runs its operators.
        """
        del asynchronous, have_grad_accumulation, disable_tensor_cache, dry_run
        target = model if inplace else copy.copy(model)
        run = model.forward
        parameters = list(model.parameters())

        def forward(*args: Any, **kwargs: Any) -> Any:
            self._iteration += 1
            if verbose and self._iteration % log_frequency == 0:
                _logger.info("iteration %d: %d graphs (simulated)", self._iteration, len(self._graphs))
            key = input_hash((args, kwargs, model.training, torch.is_grad_enabled()))
            if key not in self._graphs:
                self._make_room(use_lfu)
                self._graphs[key] = _capture(run, (args, kwargs), parameters, allow_unused_input)
            self._uses[key] += 1
            self._graphs.move_to_end(key)
            return self._graphs[key]((args, kwargs))

        target.forward = forward
        return target

    def set_iteration_count(self, count: int) -> None:
        """Let the log count from here."""
        self._iteration = count

    def _make_room(self, use_lfu: bool) -> None:
        while len(self._graphs) >= self._max_graphs:
            oldest = next(iter(self._graphs))
            leaving = min(self._graphs, key=lambda key: self._uses[key]) if use_lfu else oldest
            del self._graphs[leaving]


def _capture(
    run: Callable[..., Any], arguments: Any, parameters: Sequence[torch.Tensor], allow_unused_input: bool
) -> GraphedCall:
    return GraphedCall(run, arguments, parameters, allow_unused_input=allow_unused_input)
