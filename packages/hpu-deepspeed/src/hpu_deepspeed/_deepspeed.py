"""DeepSpeed for Gaudi: import, version checks and patches.

On import, DeepSpeed chooses an accelerator for the whole process, and its class for Gaudi enables torch's deterministic
algorithms. `load` makes it choose Gaudi and restores the user's settings.
"""

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch
from packaging.version import Version

from hpu_core import bridge
from hpu_deepspeed import _deepspeed_0_16

_ACCELERATOR_ENV: Final = "DS_ACCELERATOR"
# Variables of the bridge that DeepSpeed needs, as HPU_Accelerator.apply_hpu_workarounds.
BRIDGE_ENV: Final = {"PT_HPU_LAZY_ACC_PAR_MODE": "0", "PT_HPU_ENABLE_REFINE_DYNAMIC_SHAPES": "0"}
# Intel's fork for SynapseAI 1.11.
_MIN_VERSION: Final = Version("0.9.4")
# First upstream release that supports Gaudi (DeepSpeed pull request 4912).
_MIN_UPSTREAM_VERSION: Final = Version("0.13.0")
_FORK: Final = (
    'or on a Gaudi machine Intel\'s fork, pip install "git+https://github.com/HabanaAI/DeepSpeed.git@<release>" with '
    "your SynapseAI release"
)


@functools.cache
def load() -> ModuleType:
    """Import DeepSpeed for Gaudi without opening a device, and return the module `deepspeed`.

    Raises:
        ModuleNotFoundError: DeepSpeed or the Gaudi bridge is not installed.
        ImportError: DeepSpeed is too old.
        RuntimeError: DeepSpeed was already imported and uses another accelerator.
    """
    check_version()
    bridge.load()
    if "deepspeed" in sys.modules:
        deepspeed = importlib.import_module("deepspeed")
    else:
        # DeepSpeed sets `BRIDGE_ENV` on import.
        env = _restored(os.environ, _ACCELERATOR_ENV, *BRIDGE_ENV)
        with env, _restored(sys.modules, "triton"), _preserve_determinism():
            os.environ[_ACCELERATOR_ENV] = "hpu"
            # Up to 0.19.0, DeepSpeed probes for a GPU with triton, which fails where triton is installed (as with torch
            # for CUDA) and there is no GPU. None makes the import fail.
            sys.modules["triton"] = None  # type: ignore[assignment] # See above.
            _deepspeed_0_16.set_fork_env(version())
            deepspeed = importlib.import_module("deepspeed")
            # Some releases choose the accelerator on this call rather than on import.
            deepspeed.accelerator.get_accelerator()
    accelerator = deepspeed.accelerator.get_accelerator()
    if (name := accelerator.device_name()) != "hpu":
        raise RuntimeError(
            f"DeepSpeed's accelerator must be 'hpu', got {name!r}, which it chose for the whole process when it was "
            f"imported: set {_ACCELERATOR_ENV}=hpu before the program starts, or create the strategy before anything "
            "imports deepspeed"
        )
    _deepspeed_0_16.patch(accelerator)
    return deepspeed


@contextlib.contextmanager
def freeze_set_device() -> Iterator[None]:
    """Disable `set_device` of DeepSpeed's accelerator inside the context.

    DeepSpeed passes the local rank, which the bridge takes for a module number. The strategy has chosen the device.
    """
    # hpu-doctor verify: set-device-edits-the-module
    accelerator = load().accelerator.get_accelerator()
    # DeepSpeed passes the index by position and by name.
    accelerator.set_device = lambda *_, **__: None
    try:
        yield
    finally:
        del accelerator.set_device


def patch_weight_loading(engine: Any) -> None:
    """Make a stage 3 engine without a real optimizer able to load weights.

    After loading, DeepSpeed 0.19 calls a method that only real optimizers have, to update their copy of the weights.
    """
    optimizer: Any = getattr(engine, "optimizer", None)
    if optimizer is not None and not hasattr(optimizer, "_restore_from_bit16_weights"):
        # A placeholder has no copy.
        optimizer._restore_from_bit16_weights = lambda: None  # noqa: SLF001 - the name that DeepSpeed calls.


def has_op(name: str) -> bool:
    """Return whether DeepSpeed has a native operator for Gaudi, such as "AsyncIOBuilder"."""
    builder = load().accelerator.get_accelerator().get_op_builder(name)
    return builder is not None and builder.__name__ == name


@contextlib.contextmanager
def buffered_saves(_: Path) -> Iterator[Callable[[Any], None]]:
    """Return the context in which files of a checkpoint are kept in memory, of the function that writes them."""
    files: dict[str, io.BytesIO] = {}
    module = importlib.import_module(f"{load().__name__}.runtime.checkpoint_engine.torch_checkpoint_engine")
    engine = module.TorchCheckpointEngine
    original = engine.save

    def save(self: Any, state_dict: Any, path: str) -> Any:
        files[path] = io.BytesIO()
        return original(self, state_dict, files[path])

    def write(_: Any) -> None:
        for path, content in files.items():
            Path(path).write_bytes(content.getbuffer())

    engine.save = save
    try:
        yield write
    finally:
        engine.save = original


def check_version() -> None:
    """Raise if the installed DeepSpeed is too old for Gaudi, without importing it.

    Raises:
        ImportError: DeepSpeed is too old.
        ModuleNotFoundError: DeepSpeed is not installed.
    """
    found = Version(version())
    # A local version marks a build from source, which may be one of the fork.
    minimum = _MIN_UPSTREAM_VERSION if found.local is None else _MIN_VERSION
    if found < minimum:
        raise ImportError(
            f"hpu-deepspeed needs DeepSpeed {minimum} or newer, found {found}: pip install -U deepspeed, {_FORK}",
            name="deepspeed",
        )


def move_placeholders(module: torch.nn.Module) -> None:
    """Move the empty tensors of parameters that stage 3 has partitioned to the device, where they are gathered again.

    DeepSpeed gathers on the device of the empty tensor, and Lightning has moved it to the host.
    """
    for parameter in module.parameters():
        if hasattr(parameter, "ds_id") and not parameter.numel():
            parameter.data = parameter.data.to("hpu")


def remove_hooks(engine: Any) -> None:
    """Remove the hooks of stage 3 from a module, because those of the next engine renumber what these have recorded."""
    optimizer: Any = getattr(engine, "optimizer", None)
    offload: Any = getattr(optimizer, "parameter_offload", optimizer)
    # Stages 1 and 2 have none, and their `destroy` ends more than hooks.
    if type(offload).__name__ == "DeepSpeedZeRoOffload":
        offload.destroy()


def restore_linear() -> None:
    """Restore `torch.nn.functional.linear`, which stage 3 replaces in the process for all modules, and never restores.

    The replacement is not cast by op lists. The next engine of stage 3 replaces it again.
    """
    module: Any = sys.modules.get("deepspeed.runtime.zero.partition_parameters")
    original = getattr(getattr(module, "InsertPostInitMethodToModuleSubClasses", None), "linear_bk", None)
    # Intel's fork for 1.11 keeps no original.
    if original is not None and torch.nn.functional.linear is module.zero3_linear_wrap:
        torch.nn.functional.linear = original


def version() -> str:
    """Return the version of the installed DeepSpeed, such as "0.16.1+hpu.synapse.v1.22.0", without importing it.

    Raises:
        ModuleNotFoundError: DeepSpeed is not installed.
    """
    try:
        return importlib.metadata.version("deepspeed")
    except importlib.metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(
            f"hpu-deepspeed needs DeepSpeed, which is not installed: pip install deepspeed, {_FORK}", name="deepspeed"
        ) from error


@contextlib.contextmanager
def _restored(mapping: MutableMapping[str, Any], *keys: str) -> Iterator[None]:
    """Restore the values of a mapping's keys on exit."""
    previous = {key: mapping[key] for key in keys if key in mapping}
    try:
        yield
    finally:
        for key in keys:
            mapping.pop(key, None)
        mapping.update(previous)


@contextlib.contextmanager
def _preserve_determinism() -> Iterator[None]:
    """Restore torch's settings for deterministic algorithms on exit."""
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    # Added in torch 2.2.
    deterministic = getattr(torch.utils, "deterministic", None)
    fill = deterministic.fill_uninitialized_memory if deterministic else None
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
        if deterministic:
            deterministic.fill_uninitialized_memory = fill
