"""Casting by our own kernels on torch's autocast key for hpu, where the bridge does not cast as the lists say.

`torch.autocast("hpu")` makes torch look for a kernel on that key before it runs an operator. The bridge puts its own
there when it is loaded and never again. Kernels that are put there later take their place until they are removed, so
an operator is cast whoever calls it (functions, methods, layers, torch's own C++), with autograd, and torch.compile
traces the casts. One set of rules holds in a process at a time.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from hpu_precision import _names

Policy = Literal["lower", "fp32", "promote"]

# Of these only the first input is cast: statistics and weights keep their type. So it is on the bridge.
_FIRST_ONLY: Final = frozenset({"batch_norm", "group_norm", "instance_norm", "layer_norm"})

# float64 and fp8 keep their type. So it is on the bridge.
_CASTABLE: Final = frozenset({torch.float32, torch.bfloat16, torch.float16})

_KEY_NAME: Final = "AutocastHPU"
# torch has no public names for these, and its annotations lack the key.
_KEY: Final = torch._C.DispatchKey.AutocastHPU  # type: ignore[attr-defined] # noqa: SLF001
_exclude: Final = torch._C._dispatch_tls_set_dispatch_key_excluded  # noqa: SLF001

_Kernel = Callable[..., Any]
_Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rules:
    """What operators do under autocast.

    Attributes:
        policies: A policy for each name of an op list.
        alone: Whether every other operator casts nothing; otherwise it does what the bridge does with it.
        verbose: Whether each operator's type is told when it first runs.
    """

    policies: frozenset[tuple[str, Policy]]
    alone: bool
    verbose: bool = False


class _State:
    """What holds in this process."""

    rules: Rules | None = None
    library: torch.library.Library | None = None


def use(rules: Rules | None, tell: _Tell) -> None:
    """Make rules hold in this process in place of those that hold now; None for the bridge's own behaviour.

    Calling it again with the same rules costs a comparison.

    Args:
        rules: What is to hold.
        tell: Shows a line of text to the user, for verbose rules.
    """
    if rules == _State.rules:
        return
    _remove()
    if rules is not None:
        _State.library = _install(rules, tell)
    _State.rules = rules
    # Graphs that were compiled before hold the casts of that time, and nothing in torch compares them.
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()


def are_possible() -> bool:
    """Tell whether the loaded bridge has autocast: without it, an operator under autocast would be an error."""
    return bool(torch._C._dispatch_has_backend_fallback(_KEY))  # noqa: SLF001 - torch has no public name.


def _remove() -> None:
    library, _State.library, _State.rules = _State.library, None, None
    # torch below 2.1 removes the kernels when the object goes.
    if library is not None and hasattr(library, "_destroy"):
        library._destroy()  # noqa: SLF001 - it would also be called when the object goes, at a time unknown.


def _install(rules: Rules, tell: _Tell) -> torch.library.Library:
    library = torch.library.Library("aten", "IMPL", _KEY_NAME)
    ruled = set()
    with warnings.catch_warnings():
        # torch warns that a kernel takes another's place, which is what is wanted.
        warnings.simplefilter("ignore")
        for name, policy in sorted(rules.policies):
            for overload in _overloads(name):
                if overload.name() not in ruled:
                    ruled.add(overload.name())
                    library.impl(overload, _kernel(overload, name, policy, tell if rules.verbose else None))
        if rules.alone:
            for overload in _bridge_overloads():
                if overload.name() not in ruled:
                    library.impl(overload, _passing(overload))
    return library


def _overloads(name: str) -> Iterator[torch._ops.OpOverload]:
    """Give what can be cast of the operators that a name stands for."""
    for operator in sorted(_names.operators(name)):
        packet = getattr(torch.ops.aten, operator)
        for overload_name in packet.overloads():
            overload = getattr(packet, overload_name)
            if _is_castable(overload):
                yield overload


def _is_castable(overload: torch._ops.OpOverload) -> bool:
    arguments = overload._schema.arguments  # noqa: SLF001 - torch has no public name.
    # What is written to has its type. Overloads on plain numbers exist for TorchScript only.
    writes = any(argument.alias_info is not None and argument.alias_info.is_write for argument in arguments)
    takes_tensors = any("Tensor" in str(argument.type) for argument in arguments)
    return takes_tensors and not writes and torch._C._dispatch_has_kernel(overload.name())  # noqa: SLF001 - as above.


def _bridge_overloads() -> Iterator[torch._ops.OpOverload]:
    """Give the operators for which the bridge has an autocast kernel."""
    for qualified in torch._C._dispatch_get_registrations_for_dispatch_key(_KEY_NAME):  # noqa: SLF001 - as above.
        namespace, _, name = qualified.partition("::")
        packet, _, overload = name.partition(".")
        if namespace == "aten":
            yield getattr(getattr(torch.ops.aten, packet), overload or "default")


def _passing(overload: torch._ops.OpOverload) -> _Kernel:
    """Return a kernel that casts nothing."""
    fallthrough: _Kernel | None = getattr(torch.library, "fallthrough_kernel", None)
    if fallthrough is not None:
        return fallthrough

    # torch 2.0. Unlike above, the operators that this one is made of cast nothing either.
    def kernel(*arguments: Any, **options: Any) -> Any:
        _exclude(_KEY, True)
        try:
            return overload(*arguments, **options)
        finally:
            _exclude(_KEY, False)

    return kernel


def _kernel(overload: torch._ops.OpOverload, name: str, policy: Policy, tell: _Tell | None) -> _Kernel:
    """Return a kernel that casts the inputs of an operator and runs it without further casts inside."""
    target = _TARGETS[policy]
    last = 1 if overload._schema.name.removeprefix("aten::") in _FIRST_ONLY else None  # noqa: SLF001 - as above.
    # What calling the overload calls; each microsecond here is paid by every op of a list.
    run = overload._op  # noqa: SLF001 - see above.
    told: set[torch.dtype] = set()

    def kernel(*arguments: Any, **options: Any) -> Any:
        # Before the casts, which are operators, too. It was not excluded, or this would not run.
        _exclude(_KEY, True)
        try:
            dtype = target(arguments)
            if dtype is not None:
                first = arguments if last is None else arguments[:last]
                arguments = (*[_cast(value, dtype) for value in first], *arguments[len(first) :])
            if tell is not None:
                _tell_once(name, policy, arguments, told, tell)
            return run(*arguments, **options)
        finally:
            _exclude(_KEY, False)

    return kernel


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        if value.dtype is dtype or value.dtype not in _CASTABLE or value.device.type != "hpu":
            return value
        return value.to(dtype)
    if isinstance(value, (list, tuple)):
        return [_cast(element, dtype) for element in value]
    return value


def _dtypes(arguments: Sequence[Any]) -> Iterator[torch.dtype]:
    """Give the types of the hpu tensors that a cast would consider."""
    for value in arguments:
        if isinstance(value, torch.Tensor):
            if value.dtype in _CASTABLE and value.device.type == "hpu":
                yield value.dtype
        elif isinstance(value, (list, tuple)):
            yield from _dtypes(value)


def _lower(_: Sequence[Any]) -> torch.dtype:
    # Below 2.4, torch asks the device's module itself.
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype("hpu")
    dtype: torch.dtype = torch.hpu.get_autocast_hpu_dtype()  # type: ignore[attr-defined] # The bridge registers it.
    return dtype


def _fp32(_: Sequence[Any]) -> torch.dtype:
    return torch.float32


def _widest(arguments: Sequence[Any]) -> torch.dtype | None:
    # Of any two of the three types, float32 holds both.
    found = set(_dtypes(arguments))
    return torch.float32 if len(found) > 1 else None


_TARGETS: Final[dict[Policy, Callable[[Sequence[Any]], torch.dtype | None]]] = {
    "lower": _lower,
    "fp32": _fp32,
    "promote": _widest,
}


def _tell_once(
    name: str, policy: Policy, arguments: Sequence[Any], told: set[torch.dtype], tell: Callable[[str], None]
) -> None:
    dtype = next(_dtypes(arguments), None)
    if dtype is None or dtype in told:
        return
    told.add(dtype)
    reasons = {"lower": "lower-precision list", "fp32": "float32 list", "promote": "widest of its inputs"}
    tell(f"{name} runs in {str(dtype).removeprefix('torch.')} ({reasons[policy]})")
