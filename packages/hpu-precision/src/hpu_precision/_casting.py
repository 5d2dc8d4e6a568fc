"""Running code in the types that op lists say, by whatever the release offers for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from hpu_core import bridge
from hpu_precision import _hmp, _kernels, _names, _variables
from hpu_precision._kernels import Policy, Rules
from hpu_precision.op_lists import OpLists, bridge_names, default_op_lists


@dataclass(frozen=True, slots=True)
class _Way:
    """How the lists are applied in this process.

    Attributes:
        hmp: HMP, where the release has it.
        rules: What our kernels do beside HMP or the bridge, or in their place; None where they have nothing to do.
        autocast: Whether autocast is entered.
    """

    hmp: ModuleType | None = None
    rules: Rules | None = None
    autocast: bool = False


class Casting:
    """Casts inside `on()` by op lists, and nowhere else.

    Args:
        lists: The lists.
        dtype: The lower precision: bfloat16 or float16.
        verbose: Whether each op's type is shown when it first runs.
        tell: Shows a line of text to the user.
    """

    def __init__(self, lists: OpLists, dtype: torch.dtype, *, verbose: bool, tell: Callable[[str], None]) -> None:
        self.lists = lists
        self.dtype = dtype
        self._verbose = verbose
        self._tell = tell
        self._way: _Way | None = None
        self._is_on = False
        if lists != default_op_lists() and not _hmp.is_offered():
            _variables.announce(lists)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what holds in this process only, so that a spawned one decides anew."""
        return {**self.__dict__, "_way": None, "_is_on": False}

    @contextmanager
    def on(self) -> Iterator[None]:
        """Cast inside the context.

        Raises:
            ModuleNotFoundError: The Gaudi bridge is not installed.
            NotImplementedError: The card does not compute in the lower precision.
            RuntimeError: HMP casts by other lists in this process.
        """
        way = self._way or self._find_way()
        _kernels.use(way.rules, self._tell)
        with self._switched(way, enabled=True):
            yield

    @contextmanager
    def off(self) -> Iterator[None]:
        """Cast nothing inside the context; costs nothing where nothing is cast anyway."""
        if self._way is None or not self._is_on:
            yield
            return
        with self._switched(self._way, enabled=False):
            yield

    def kept(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that runs inside `off()` as it would have run now."""
        if not self._is_on:
            return function

        def run() -> Any:
            with self.on():
                return function()

        return run

    @contextmanager
    def _switched(self, way: _Way, *, enabled: bool) -> Iterator[None]:
        before, self._is_on = self._is_on, enabled
        try:
            with ExitStack() as contexts:
                if way.hmp is not None:
                    contexts.enter_context(_hmp.casts(way.hmp, enabled=enabled))
                if way.autocast:
                    # Without torch's cache of cast weights, which the bridge does not use either: it would hold stale
                    # weights after an optimizer step inside the context.
                    contexts.enter_context(
                        torch.autocast("hpu", dtype=self.dtype, enabled=enabled, cache_enabled=False)
                    )
                yield
        finally:
            self._is_on = before

    def _find_way(self) -> _Way:
        """Decide how the lists are applied in this process, once its bridge is loaded."""
        hmp = bridge.hmp()
        if self.dtype is torch.float16 and not bridge.is_fp16_supported():
            raise NotImplementedError("precision='16-mixed' needs Gaudi 2 or newer: use precision='bf16-mixed'")
        if hmp is not None and self.dtype is torch.bfloat16:
            _hmp.convert(hmp, self.lists)
            # HMP sees only what Python calls by the name that it has replaced. The kernels see the rest.
            way = _Way(hmp, self._rules(alone=True), autocast=True) if _kernels.are_possible() else _Way(hmp)
        elif (_variables.announced() or default_op_lists()) == self.lists and not self._verbose:
            way = _Way(rules=self._rules(alone=False), autocast=True)
        else:
            if not self._verbose:
                self._tell(
                    "hpu-precision applies the op lists by kernels of its own: the Gaudi bridge reads lists only when "
                    "it is loaded, which was before they were given. The results are the same."
                )
            way = _Way(rules=self._rules(alone=True), autocast=True)
        self._way = way
        return way

    def _rules(self, *, alone: bool) -> Rules | None:
        """Return the rules for all ops, or for those alone that the bridge does not know; None where there are none."""
        lists: dict[Policy, frozenset[str]] = {
            "lower": self.lists.lower,
            "fp32": self.lists.fp32,
            "promote": self.lists.promote,
        }
        known = frozenset() if alone else _names.operators_of(bridge_names())
        policies = frozenset(
            (name, policy) for policy, names in lists.items() for name in names if not _names.operators(name) <= known
        )
        return Rules(policies, alone=alone, verbose=self._verbose) if policies else None
