"""Autocast by op lists, with the mechanism that the SynapseAI release supports."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, get_args

import torch

from hpu_core import bridge
from hpu_core.hmp import casts, load_hmp
from hpu_precision import _hmp, _kernels
from hpu_precision._kernels import Policy, Rules
from hpu_precision.op_lists import OpLists, default_op_lists


@dataclass(frozen=True, slots=True)
class _CastBackend:
    """Mechanism that applies the op lists in this process.

    Attributes:
        hmp: The HMP module, if the release has it.
        rules: Rules for this package's kernels, which complement HMP or replace the bridge's; None if unused.
        autocast: Whether to enter `torch.autocast`.
    """

    hmp: ModuleType | None = None
    rules: Rules | None = None
    autocast: bool = False


class AutocastPolicy:
    """Casts by op lists inside the context `enabled()`.

    Args:
        lists: The op lists.
        dtype: The lower precision, bfloat16 or float16.
        verbose: Whether to log each operator's dtype when it first runs.
        log: Function that logs a line.
    """

    def __init__(self, lists: OpLists, dtype: torch.dtype, *, verbose: bool, log: Callable[[str], None]) -> None:
        self.lists = lists
        self.dtype = dtype
        self._verbose = verbose
        self._log = log
        self._backend: _CastBackend | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Drop the state of this process, because a spawned process selects its own backend."""
        return {**self.__dict__, "_backend": None}

    @contextmanager
    def enabled(self) -> Iterator[None]:
        """Enable casts inside the context; raise an error if the device or HMP does not support them."""
        backend = self._backend or self._select_backend()
        _kernels.install(backend.rules, self._log)
        with ExitStack() as contexts:
            if backend.hmp is not None:
                contexts.enter_context(casts(enabled=True))
            if backend.autocast:
                # torch's cache of cast weights would be stale after an optimizer step inside the context. The bridge
                # does not use it either.
                contexts.enter_context(torch.autocast("hpu", dtype=self.dtype, cache_enabled=False))
            yield

    def _select_backend(self) -> _CastBackend:
        """Select the mechanism for this process; the bridge is loaded by now."""
        hmp = load_hmp()
        if self.dtype is torch.float16 and not bridge.is_fp16_supported():
            raise NotImplementedError("precision='16-mixed' needs Gaudi 2 or newer: use precision='bf16-mixed'")
        if hmp is not None and self.dtype is torch.bfloat16:
            _hmp.convert(hmp, self.lists)
            # HMP casts only calls through the Python names that it has replaced. The kernels cast all others.
            has_kernels = _kernels.is_supported()
            backend = _CastBackend(hmp, self._make_rules() if has_kernels else None, autocast=has_kernels)
        elif self.lists == default_op_lists() and not self._verbose:
            # The bridge's own.
            backend = _CastBackend(autocast=True)
        else:
            backend = _CastBackend(rules=self._make_rules(), autocast=True)
        self._backend = backend
        return backend

    def _make_rules(self) -> Rules:
        policies = ((name, policy) for policy in get_args(Policy) for name in getattr(self.lists, policy))
        return Rules(frozenset(policies), verbose=self._verbose)
