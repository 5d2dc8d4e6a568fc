"""DeepSpeed itself: the only module that imports it, and has it choose Gaudi.

DeepSpeed asks once, when it is imported, which accelerator it is for, and its class for Gaudi then switches torch to
deterministic algorithms for the whole process. Which accelerator it is to be is said here; the switch is put back.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import operator
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import torch
from packaging.version import InvalidVersion, Version

from hpu_core import bridge, releases

_VARIABLE: Final = "DS_ACCELERATOR"
# What lightning-habana set for Intel's fork, whose older releases ask for the first rather than for the one above.
_FORK: Final = "hpu.synapse"
_VARIABLES_OF_FORK: Final = {
    "DEEPSPEED_USE_HPU": "true",
    "PT_HPU_LAZY_ACC_PAR_MODE": "0",
    "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES": "0",
}
# Intel's fork for SynapseAI 1.11.
_OLDEST: Final = Version("0.9.4")
# The first of DeepSpeed's own releases that knows Gaudi (their pull request 4912).
_OLDEST_OF_ITS_OWN: Final = Version("0.13.0")
_FIRST_PYDANTIC_2: Final = Version("2.0.dev0")
_TAKES_DEFAULT: Final = Version("2.3.dev0")


def load() -> ModuleType:
    """Import DeepSpeed for Gaudi. Opens no card.

    Returns:
        The module `deepspeed`.

    Raises:
        ModuleNotFoundError: DeepSpeed or the Gaudi bridge is not installed.
        ImportError: DeepSpeed is too old.
        RuntimeError: The program has imported DeepSpeed before, and it has chosen another accelerator than Gaudi.
    """
    check_version()
    bridge.load()
    if "deepspeed" in sys.modules:
        deepspeed = importlib.import_module("deepspeed")
    else:
        if _FORK in version():
            for name, value in _VARIABLES_OF_FORK.items():
                os.environ.setdefault(name, value)
        with _for_gaudi(), _without_triton(), _switches_kept():
            deepspeed = importlib.import_module("deepspeed")
            # Asked here at the latest, whatever the import has needed.
            deepspeed.accelerator.get_accelerator()
    take_own_default(importlib.import_module("deepspeed.runtime.zero.config").DeepSpeedZeroConfig)
    accelerator = deepspeed.accelerator.get_accelerator()
    chosen = accelerator.device_name()
    if chosen != "hpu":
        raise RuntimeError(
            f"DeepSpeed was imported before the strategy was made, and has chosen the accelerator {chosen!r} for the "
            f"whole process: set {_VARIABLE}=hpu before the program starts, or make the strategy before anything "
            "imports deepspeed"
        )
    # Before 0.14.5, the card of rank 1 was "hpu:1"; a process has one, and it is number 0.
    accelerator.device_name = _device_name
    _complete_optimizer()
    return deepspeed


def _device_name(device_index: int | None = None) -> str:  # noqa: ARG001 - DeepSpeed passes one.
    return "hpu"


def _complete_optimizer() -> None:
    """Give DeepSpeed's optimizer for bfloat16 without ZeRO what Lightning asks of each.

    DeepSpeed 0.14 lacks both, and 0.16 the first.
    """
    kind: Any = importlib.import_module("deepspeed.runtime.bf16_optimizer").BF16_Optimizer
    if not hasattr(kind, "zero_grad"):
        kind.zero_grad = _zero_grad
    if not hasattr(kind, "state"):
        kind.state = property(operator.attrgetter("optimizer.state"))


def _zero_grad(optimizer: Any, set_to_none: bool = True) -> None:  # noqa: ARG001 - callers of torch's optimizers pass it.
    optimizer.clear_lp_grads()
    optimizer.clear_hp_grads()


@contextlib.contextmanager
def card_kept() -> Iterator[None]:
    """Have DeepSpeed take the card that this process has, whichever number it is told.

    To its process, a card is number 0. To choose one, it is the module's number, and DeepSpeed takes one for both.
    """
    accelerator = load().accelerator.get_accelerator()
    accelerator.set_device = _keep_card
    try:
        yield
    finally:
        del accelerator.set_device


def _keep_card(device_index: object) -> None:
    """Stand for the accelerator's method that chooses a card."""


def keep_old_names() -> None:
    """Have a class where Lightning 2.1 to 2.3 look for it when Fabric loads a checkpoint, as DeepSpeed once had it."""
    runtime = importlib.import_module("deepspeed.runtime")
    if not hasattr(runtime, "DeepSpeedOptimizer"):
        base = importlib.import_module("deepspeed.runtime.base_optimizer")
        runtime.DeepSpeedOptimizer = base.DeepSpeedOptimizer  # type: ignore[attr-defined] # DeepSpeed is untyped.


def let_weights_be_loaded(engine: Any) -> None:
    """Have an engine load weights in ZeRO stage 3 where nothing is trained, and something stands for an optimizer.

    DeepSpeed 0.19 has loaded the weights when it asks for a method of that, to copy them to the optimizer's own, which
    there are none of.
    """
    optimizer = getattr(engine, "optimizer", None)
    if optimizer is not None and not hasattr(optimizer, "_restore_from_bit16_weights"):
        optimizer._restore_from_bit16_weights = _nothing_to_restore  # noqa: SLF001 - the name that DeepSpeed asks for.


def has_optimizer(state: Mapping[str, Any] | None) -> bool:
    """Tell whether an optimizer of DeepSpeed's is among what Fabric is to load; call it after `keep_old_names`."""
    kind = importlib.import_module("deepspeed.runtime").DeepSpeedOptimizer
    return state is not None and any(isinstance(part, kind) for part in state.values())


def has_op(name: str) -> bool:
    """Tell whether DeepSpeed has one of its native operators for Gaudi, such as "AsyncIOBuilder"."""
    builder = load().accelerator.get_accelerator().get_op_builder(name)
    return builder is not None and builder.__name__ == name


def take_own_default(options: Any) -> None:
    """Have pydantic take the default that DeepSpeed has for one of its options, `sys.maxsize` in a class of its own.

    Those from 2.0 to 2.2 refuse an integer of that size unless it is a plain one. The distribution `lightning` 2.0
    wants one of them or an older one, and DeepSpeed from 0.15 on is content with each from 2.0 on.

    Args:
        options: DeepSpeed's options of ZeRO, a model of pydantic's.
    """
    if not _FIRST_PYDANTIC_2 <= Version(importlib.metadata.version("pydantic")) < _TAKES_DEFAULT:
        return
    if not hasattr(options, "model_fields"):
        # DeepSpeed before 0.15 works by the interface of pydantic 1, whichever is installed.
        return
    field = options.model_fields["model_persistence_threshold"]
    if type(field.default) is not int:
        field.default = int(field.default)
        options.model_rebuild(force=True)


@functools.cache
def check_release() -> None:
    """Warn, once, of a DeepSpeed that nobody has tested with the installed SynapseAI release; call it after `load`."""
    plugin = bridge.plugin_version()
    if plugin is None or bridge.is_simulated():
        # These packages are tested with the simulator and DeepSpeed from PyPI.
        return
    found = version()
    row = releases.find(plugin)
    known = row.deepspeed if row else None
    if found == known:
        return
    advice = f"the release was published with {known}" if known else "no fork is known for this release"
    warnings.warn(
        f"DeepSpeed {found} has not been tested with SynapseAI {row.release if row else plugin}: {advice}",
        stacklevel=3,
    )


def check_version() -> None:
    """Check that DeepSpeed is one for Gaudi, as far as its version tells. Loads nothing.

    Raises:
        ImportError: It is too old.
        ModuleNotFoundError: It is not installed.
    """
    found = version()
    try:
        parsed = Version(found)
    except InvalidVersion:
        # A build of the user's own.
        return
    if parsed < _OLDEST:
        raise ImportError(
            f"hpu-deepspeed needs DeepSpeed {_OLDEST} or newer, found {found}: pip install -U deepspeed",
            name="deepspeed",
        )
    # A build from sources has a local version, as the fork has, and may be of the fork.
    if parsed.local is None and parsed < _OLDEST_OF_ITS_OWN:
        raise ImportError(
            f"DeepSpeed {found} cannot train on Gaudi: of DeepSpeed's own releases, {_OLDEST_OF_ITS_OWN} is the first "
            "that knows it, before it only Intel's fork did: pip install -U deepspeed, or "
            'pip install "git+https://github.com/HabanaAI/DeepSpeed.git@<release>" with your SynapseAI release',
            name="deepspeed",
        )


def version() -> str:
    """Return the version of the installed DeepSpeed, such as "0.16.1+hpu.synapse.v1.22.0". Loads nothing.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    try:
        return importlib.metadata.version("deepspeed")
    except importlib.metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(
            "hpu-deepspeed needs DeepSpeed, which is not installed: pip install deepspeed, or on a Gaudi machine "
            'Intel\'s fork, pip install "git+https://github.com/HabanaAI/DeepSpeed.git@<release>" with your SynapseAI '
            "release",
            name="deepspeed",
        ) from error


@contextlib.contextmanager
def _for_gaudi() -> Iterator[None]:
    """Have DeepSpeed choose Gaudi, and leave no variable of it behind."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "hpu"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


@contextlib.contextmanager
def _without_triton() -> Iterator[None]:
    """Have DeepSpeed find no triton, which it does not use on Gaudi.

    Up to 0.19.0, DeepSpeed looks for a GPU with it as soon as it is imported, which fails where triton is installed, as
    with torch for CUDA, and there is none.
    """
    loaded = sys.modules.get("triton")
    sys.modules["triton"] = None  # type: ignore[assignment] # To Python, None is a module that is not there.
    try:
        yield
    finally:
        del sys.modules["triton"]
        if loaded is not None:
            sys.modules["triton"] = loaded


@contextlib.contextmanager
def _switches_kept() -> Iterator[None]:
    """Put back the switches for deterministic algorithms, which are the user's."""
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    # Since torch 2.2.
    deterministic = getattr(torch.utils, "deterministic", None)
    fill = deterministic.fill_uninitialized_memory if deterministic else None
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
        if deterministic:
            deterministic.fill_uninitialized_memory = fill


def _nothing_to_restore() -> None:
    """Stand for an optimizer's method where there is no optimizer."""
