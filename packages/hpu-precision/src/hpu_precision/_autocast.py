"""Autocast by op lists, with the mechanism that the SynapseAI release supports."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, get_args

import torch

from hpu_core import bridge
from hpu_core.hmp import casts, load_hmp
from hpu_precision import _hmp, _kernels
from hpu_precision._kernels import Policy, Rules
from hpu_precision.op_lists import OpLists, default_op_lists, unlisted_op_lists


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
        # HMP, if the release has it, and the rules of this package's kernels, which complement HMP, or complement or
        # replace the bridge's; None if neither is possible. Chosen by each process.
        self._backend: tuple[ModuleType | None, Rules | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Drop the state of this process, because a spawned process selects its own backend."""
        return {**self.__dict__, "_backend": None}

    @contextmanager
    def enabled(self) -> Iterator[None]:
        """Enable casts inside the context; raise an error if the device or HMP does not support them."""
        if self._backend is None:
            self._backend = self._select_backend()
        hmp, rules = self._backend
        _kernels.install(rules, self._log)
        with ExitStack() as contexts:
            if hmp is not None:
                contexts.enter_context(casts(enabled=True))
            # A bridge with HMP may have no autocast, and then no kernels.
            if hmp is None or rules is not None:
                # torch's cache of cast weights would be stale after an optimizer step inside the context. The bridge
                # does not use it either.
                contexts.enter_context(torch.autocast("hpu", dtype=self.dtype, cache_enabled=False))
            yield

    def _select_backend(self) -> tuple[ModuleType | None, Rules | None]:
        """Select the mechanism for this process; the bridge is loaded by now."""
        hmp = load_hmp()
        if self.dtype is torch.float16 and not bridge.is_fp16_supported():
            raise NotImplementedError("precision='16-mixed' needs Gaudi 2 or newer: use precision='bf16-mixed'")
        if hmp is not None and self.dtype is torch.bfloat16:
            _hmp.convert(hmp, self.lists)
            # HMP casts only calls through the Python names that it has replaced. The kernels cast all others.
            return hmp, self._make_rules() if _kernels.is_supported() else None
        return None, self._make_rules(replaces_bridge=self.lists != default_op_lists() or self._verbose)

    def _make_rules(self, *, replaces_bridge: bool = True) -> Rules:
        unlisted = unlisted_op_lists(self.lists)
        policies = (
            (name, policy)
            for lists in ([self.lists, unlisted] if replaces_bridge else [unlisted])
            for policy in get_args(Policy)
            for name in getattr(lists, policy)
        )
        return Rules(frozenset(policies), replaces_bridge=replaces_bridge, verbose=self._verbose)
