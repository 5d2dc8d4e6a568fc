"""Autocast kernels for the dispatch key AutocastHPU, for operators that the bridge casts otherwise or not at all.

Under `torch.autocast("hpu")`, torch dispatches an operator to this key first. The bridge registers its kernels once,
when it is loaded. Kernels registered later override them until they are removed. They apply to every caller (functions,
methods, layers and torch's C++ code), support autograd, and torch.compile traces the casts. A process has one set of
rules at a time.
"""
# hpu-doctor verify: list-replaces-the-default

import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from hpu_precision import _op_names, _torch_2_3

Policy = Literal["lower", "fp32", "promote"]

# Only the first input of these is cast; statistics and weights keep their dtype, as in the bridge's kernels.
_CAST_FIRST_ONLY: Final = frozenset({"batch_norm", "group_norm", "instance_norm", "layer_norm"})

# float64 and fp8 tensors keep their dtype, as in the bridge's kernels.
_CAST_DTYPES: Final = frozenset({torch.float32, torch.bfloat16, torch.float16})

_KEY_NAME: Final = "AutocastHPU"
# torch has no public names for these, and its type annotations lack the key.
_KEY: Final = torch._C.DispatchKey.AutocastHPU  # type: ignore[attr-defined] # noqa: SLF001
_exclude_key: Final = torch._C._dispatch_tls_set_dispatch_key_excluded  # noqa: SLF001

_Kernel = Callable[..., Any]
_Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rules:
    """Casts of operators under autocast.

    Attributes:
        policies: Pairs of a name in an op list and its policy.
        replaces_bridge: Whether other operators cast nothing; False to keep the bridge's casts, also of named ones.
        verbose: Whether to log each operator's dtype when it first runs.
    """

    policies: frozenset[tuple[str, Policy]]
    replaces_bridge: bool = True
    verbose: bool = False


class _State:
    """State of this process."""

    rules: Rules | None = None
    library: torch.library.Library | None = None


def install(rules: Rules | None, log: _Log) -> None:
    """Replace the installed rules; None restores the bridge's kernels.

    Installing the current rules again costs one comparison.
    """
    if rules == _State.rules:
        return
    library, _State.library, _State.rules = _State.library, None, None
    if library is not None:
        _torch_2_3.destroy(library)
    if rules is not None:
        _State.library = _register(rules, log)
    _State.rules = rules
    # Compiled graphs contain the casts of the previous rules, and torch has no guard for them.
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()


def is_supported() -> bool:
    """Return whether the loaded bridge supports autocast; without it, any operator under autocast raises."""
    return bool(torch._C._dispatch_has_backend_fallback(_KEY))  # noqa: SLF001 - torch has no public name.


def _register(rules: Rules, log: _Log) -> torch.library.Library:
    library = torch.library.Library("aten", "IMPL", _KEY_NAME)
    bridges = {overload.name(): overload for overload in _bridge_overloads()}
    registered = set() if rules.replaces_bridge else set(bridges)
    with warnings.catch_warnings():
        # torch warns about overriding a kernel, which is intended here.
        warnings.simplefilter("ignore")
        for name, policy in sorted(rules.policies):
            for overload in _overloads(name):
                if overload.name() not in registered:
                    registered.add(overload.name())
                    library.impl(overload, _make_kernel(overload, name, policy, log if rules.verbose else None))
        for name, overload in bridges.items():
            if name not in registered:
                library.impl(overload, _torch_2_3.fallthrough_kernel(overload, functools.partial(_exclude_key, _KEY)))
    return library


def _overloads(name: str) -> Iterator[torch._ops.OpOverload]:
    """Yield the overloads of a name's operators that support casting."""
    for operator in sorted(_op_names.operators(name)):
        packet = getattr(torch.ops.aten, operator)
        for overload_name in packet.overloads():
            overload = getattr(packet, overload_name)
            if _supports_cast(overload):
                yield overload


def _supports_cast(overload: torch._ops.OpOverload) -> bool:
    arguments = overload._schema.arguments  # noqa: SLF001 - torch has no public name.
    # A tensor that is written to keeps its dtype. Overloads without tensors are for TorchScript only.
    is_mutable = any(argument.alias_info is not None and argument.alias_info.is_write for argument in arguments)
    has_tensors = any("Tensor" in str(argument.type) for argument in arguments)
    return has_tensors and not is_mutable and torch._C._dispatch_has_kernel(overload.name())  # noqa: SLF001 - as above.


def _bridge_overloads() -> Iterator[torch._ops.OpOverload]:
    """Yield the operators that have an autocast kernel of the bridge."""
    for qualified in torch._C._dispatch_get_registrations_for_dispatch_key(_KEY_NAME):  # noqa: SLF001 - as above.
        namespace, _, name = qualified.partition("::")
        packet, _, overload = name.partition(".")
        if namespace == "aten":
            yield getattr(getattr(torch.ops.aten, packet), overload or "default")


def _make_kernel(overload: torch._ops.OpOverload, name: str, policy: Policy, log: _Log | None) -> _Kernel:
    """Return a kernel that casts an operator's inputs and then calls it without autocast."""
    target_dtype = _TARGET_DTYPES[policy]
    num_cast = 1 if overload._schema.name.removeprefix("aten::") in _CAST_FIRST_ONLY else None  # noqa: SLF001 - as above.
    # Skips OpOverload.__call__; every listed operator pays for each microsecond here.
    call = overload._op  # noqa: SLF001 - see above.
    logged: set[torch.dtype] = set()

    def kernel(*args: Any, **kwargs: Any) -> Any:
        # Excluded before the casts, which are operators as well. It is never excluded when the kernel is called.
        _exclude_key(_KEY, True)
        try:
            dtype = target_dtype(args)
            if dtype is not None:
                cast = args if num_cast is None else args[:num_cast]
                args = (*[_cast(value, dtype) for value in cast], *args[len(cast) :])
            if log is not None:
                _log_once(name, policy, args, logged, log)
            return call(*args, **kwargs)
        finally:
            _exclude_key(_KEY, False)

    return kernel


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype is dtype or value.dtype not in _CAST_DTYPES or value.device.type != "hpu":
            return value
        return value.to(dtype)
    if isinstance(value, (list, tuple)):
        return [_cast(element, dtype) for element in value]
    return value


def _input_dtypes(args: Sequence[Any]) -> Iterator[torch.dtype]:
    """Yield the dtypes of the HPU tensors that can be cast."""
    for value in args:
        if isinstance(value, torch.Tensor):
            if value.dtype in _CAST_DTYPES and value.device.type == "hpu":
                yield value.dtype
        elif isinstance(value, (list, tuple)):
            yield from _input_dtypes(value)


_TARGET_DTYPES: Final[dict[Policy, Callable[[Sequence[Any]], torch.dtype | None]]] = {
    "lower": lambda _: _torch_2_3.autocast_dtype(),
    "fp32": lambda _: torch.float32,
    # float32 represents both of any two different dtypes.
    "promote": lambda args: torch.float32 if len(set(_input_dtypes(args))) > 1 else None,
}


def _log_once(name: str, policy: Policy, args: Sequence[Any], logged: set[torch.dtype], log: _Log) -> None:
    dtype = next(_input_dtypes(args), None)
    if dtype is None or dtype in logged:
        return
    logged.add(dtype)
    reasons = {"lower": "lower-precision list", "fp32": "float32 list", "promote": "widest of its inputs"}
    log(f"{name} runs in {str(dtype).removeprefix('torch.')} ({reasons[policy]})")
