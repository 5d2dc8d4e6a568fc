"""What importing the bridge does, the default mode, and what releases have or lack."""

import importlib.metadata
import os
import re
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from packaging.version import Version

from hpu_core import bridge
from hpu_doctor.verify.assumption import Contains, Subject
from hpu_doctor.verify.register._tools import (
    BRIDGE,
    LATER,
    core,
    error_of,
    hpu,
    module,
    opens_card,
    parameters_of,
    with_variables,
)

SUBJECT = Subject("Loading the bridge, and releases")
assume = SUBJECT.assume

_JOB = dict.fromkeys(("RANK", "WORLD_SIZE", "LOCAL_RANK", "HLS_MODULE_ID", "ID"))
_UNSET = {**_JOB, "MASTER_ADDR": None, "MASTER_PORT": None, "HABANA_VISIBLE_MODULES": None}
_INITIALIZE = BRIDGE + "distributed/hccl/__init__.py, initialize_distributed_hpu"


def _initialized(names: tuple[str, ...], variables: Mapping[str, str] | None = None, **job: int) -> object:
    """Return variables after `initialize_distributed_hpu` of a job, in an environment with others."""

    def initialize() -> object:
        bridge.load_hccl().initialize_distributed_hpu(**job)
        return [os.environ.get(name) for name in names]

    return with_variables({**_UNSET, **(variables or {})}, initialize)


@assume(
    source=BRIDGE + "__init__.py; LeakPro#425",
    expected=False,
    means={"hpu-core": "discovery and `hpu-info` would take a card from a job that is about to start."},
)
def import_opens_no_card() -> object:
    """Importing the bridge opens no card."""
    return bridge.is_open()


@assume(
    source=BRIDGE + "core/__init__.py:121-125,147",
    expected="profile_api_light",
    means={"hpu-profiler": "a trace would have no events of the card unless the user sets HABANA_PROFILE."},
)
def import_sets_habana_profile() -> object:
    """Importing the bridge sets HABANA_PROFILE to profile_api_light if it is unset."""
    return os.environ.get("HABANA_PROFILE")


@assume(
    source=BRIDGE + "__init__.py",
    expected="1",
    means={"hpu-bucketing": "compiling in the warm-up could start processes that inherit an open card."},
)
def import_sets_compile_threads() -> object:
    """Importing the bridge sets TORCHINDUCTOR_COMPILE_THREADS to 1."""
    return os.environ.get("TORCHINDUCTOR_COMPILE_THREADS")


@assume(
    source=_INITIALIZE,
    expected=["localhost", "12345"],
    means={
        "hpu-core": "restoring MASTER_ADDR and MASTER_PORT after the import would be needless.",
        "hpu-ddp": "a launcher would not have to replace the fixed endpoint.",
    },
)
def plain_process_gets_fixed_endpoint() -> object:
    """Without a job, the bridge sets MASTER_ADDR to localhost and MASTER_PORT to 12345 where they are unset."""
    return _initialized(("MASTER_ADDR", "MASTER_PORT"))


@assume(
    source=_INITIALIZE,
    expected=[1, -1, -1],
    means={"hpu-core": "`initialize_hccl` would return other values than its caller asked for."},
)
def plain_process_has_no_rank() -> object:
    """Without a job, `initialize_distributed_hpu()` returns the world size 1 and the ranks -1 and -1."""
    return with_variables(_UNSET, lambda: list(bridge.load_hccl().initialize_distributed_hpu()))


@assume(
    source=_INITIALIZE,
    expected=["4", "3", "1", "1", "3"],
    means={"hpu-core": "`initialize_hccl` would leave the card of a rank to the bridge, and two ranks could take one."},
)
def rank_selects_module() -> object:
    """`initialize_distributed_hpu(4, 3, 1)` sets the variables of the rank, and HLS_MODULE_ID to the local rank."""
    names = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "HLS_MODULE_ID", "ID")
    return _initialized(names, world_size=4, rank=3, local_rank=1)


@assume(
    source=_INITIALIZE,
    expected=["5"],
    means={"hpu-launch": "`--share` could not give two jobs of a machine different cards."},
)
def visible_modules_map_local_ranks() -> object:
    """The bridge opens the local rank's entry of HABANA_VISIBLE_MODULES."""
    visible = {"HABANA_VISIBLE_MODULES": "3,5"}
    return _initialized(("HLS_MODULE_ID",), visible, world_size=2, rank=1, local_rank=1)


@assume(
    source=_INITIALIZE + "; milabench#302",
    expected=Contains("There is not enough devices available for training"),
    means={"hpu-core": "its own check of HABANA_VISIBLE_MODULES would be the only one."},
)
def too_few_visible_modules() -> object:
    """A local rank without an entry in HABANA_VISIBLE_MODULES is an error."""
    visible = {"HABANA_VISIBLE_MODULES": "3,5"}
    return error_of(lambda: _initialized((), visible, world_size=4, rank=2, local_rank=2))


@assume(
    source=_INITIALIZE,
    expected=["6"],
    means={"hpu-core": "`initialize_hccl` would not have to replace a variable that a rank inherits."},
)
def module_id_is_kept() -> object:
    """The bridge keeps an HLS_MODULE_ID that is set."""
    return _initialized(("HLS_MODULE_ID",), {"HLS_MODULE_ID": "6"}, world_size=2, rank=1, local_rank=1)


@assume(
    source=_INITIALIZE,
    expected=["4", "3", "2"],
    means={"hpu-launch": "jobs of mpirun would need variables of their own."},
)
def open_mpi_variables_are_copied() -> object:
    """Without torch's variables, the bridge copies those of Open MPI."""
    own = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "2"}
    return _initialized(("WORLD_SIZE", "RANK", "LOCAL_RANK"), own)


@assume(
    source=BRIDGE + "__init__.py, torch._register_device_module",
    expected=True,
    means={
        "hpu-core": "torch functions that ask for the module of a device type would fail on hpu.",
        "hpu-fsdp": "FSDP and device meshes would find no module for hpu.",
    },
)
def torch_hpu_is_the_bridge() -> object:
    """After the import `torch.hpu` is the bridge's module."""
    return getattr(torch, "hpu", None) is hpu()


@assume(
    source=BRIDGE + "distributed/hccl/__init__.py, Backend.register_backend",
    expected=True,
    means={"hpu-ddp": "process groups could not be created under the name hccl."},
)
def hccl_is_registered() -> object:
    """The import registers the backend "hccl" with torch."""
    bridge.load_hccl()
    return hasattr(dist.Backend, "HCCL") or "hccl" in getattr(dist.Backend, "backend_list", [])


@assume(
    source=BRIDGE + "utils/internal.py:25-28 and scripts/env_flags.yaml:83-85",
    expected=True,
    releases="<1.21",
    means={
        "hpu-core": "`mark_step` would be left out where it is needed.",
        "hpu-bucketing": "HPU graphs would be refused in the mode that the table names.",
    },
)
def default_mode_is_lazy() -> object:
    """Without PT_HPU_LAZY_MODE the bridge is in lazy mode."""
    return bridge.is_lazy()


@assume(
    source="vllm-fork README_GAUDI 1.21.0 (commit 7461f4ae1); Model-References 1.21.0",
    expected=False,
    releases=">=1.21",
    means={
        "hpu-core": "`mark_step` would be needed and is left out.",
        "hpu-fsdp": "FSDP, which needs eager mode, would be refused by default.",
    },
)
def default_mode_is_eager() -> object:
    """Without PT_HPU_LAZY_MODE the bridge is in eager mode."""
    return bridge.is_lazy()


@assume(
    source=BRIDGE + "utils/internal.py:25-28",
    expected=True,
    mode="lazy",
    means={"hpu-core": "PT_HPU_LAZY_MODE would have to be protected from changes during a run."},
)
def mode_is_fixed_at_import() -> object:
    """A change of PT_HPU_LAZY_MODE after the import has no effect."""
    return with_variables({"PT_HPU_LAZY_MODE": "0"}, bridge.is_lazy)


@assume(
    source=BRIDGE + "setup.py; optimum-habana reads it from `pip list`",
    expected=True,
    means={"hpu-core": "the release would be unknown, and `hpu-info` could not compare it with torch and the driver."},
)
def release_in_metadata() -> object:
    """The distribution habana-torch-plugin has the version of the release, with a build number."""
    version = importlib.metadata.version("habana-torch-plugin")
    return version == bridge.plugin_version() and len(version.split(".")) > 3  # noqa: PLR2004 - 1.24.1.482.


@assume(
    source=BRIDGE + "__init__.py has no version",
    expected=False,
    releases="<=1.19",
    means={"hpu-core": "`plugin_version` could ask the module first."},
)
def no_version_attribute() -> object:
    """The bridge's module has no `__version__`."""
    return hasattr(bridge.load(), "__version__")


@assume(
    source=LATER + "version.py",
    expected=True,
    releases=">=1.20",
    means={"hpu-core": "a bridge that was not installed as a distribution would have no known version."},
)
def version_attribute() -> object:
    """The bridge's module has `__version__`, equal to that of its distribution."""
    return getattr(bridge.load(), "__version__", None) == importlib.metadata.version("habana-torch-plugin")


@assume(
    source=BRIDGE + "required_version.txt and the check in __init__.py",
    expected=True,
    simulator="hardware",
    reason="the simulated bridge runs with several versions of torch",
    means={"hpu-core": "its row of releases would name another torch than the bridge accepts."},
)
def torch_version_is_required() -> object:
    """The bridge names the torch that it needs, of which major and minor version must match, in a file of its own."""
    file = Path(str(bridge.load().__file__)).with_name("required_version.txt")
    required = re.search(r"\d+\.\d+", file.read_text(encoding="utf-8"))
    return required is not None and torch.__version__.startswith(f"{required[0]}.")


@assume(
    source=BRIDGE + "setup.py, entry point group torch.backends",
    expected=["device_backend"],
    releases=">=1.19",
    means={
        "hpu-core": "in eager mode `import torch` would not load the bridge, and its own entry point would come first."
    },
)
def bridge_has_entry_point() -> object:
    """The bridge's distribution has the entry point `device_backend`, with which `import torch` loads it."""
    distribution = importlib.metadata.distribution("habana-torch-plugin")
    return [point.name for point in distribution.entry_points if point.group == "torch.backends"]


@assume(
    source="optimum-habana 1.8 imports it on 1.12; lightning-habana 1.0 on 1.10",
    expected=True,
    releases="<1.13",
    means={"hpu-precision": "its HMP path would fail on the releases that need it."},
)
def hmp_exists() -> object:
    """The bridge has `hpex.hmp`."""
    return bridge.optional_module("hpex.hmp") is not None


@assume(
    source=BRIDGE + "hpex/ has no hmp; Model-References 1.13 has no user of it",
    expected=False,
    releases=">=1.13",
    means={"hpu-precision": "`precision='hmp'` is refused where it would work."},
)
def hmp_is_gone() -> object:
    """The bridge has no `hpex.hmp`."""
    return bridge.optional_module("hpex.hmp") is not None


@assume(
    source=BRIDGE + "core/torch_overwrites.py",
    expected=[False, False],
    releases="<=1.19",
    means={"hpu-core": "the rendezvous would not have to leave out arguments of torch's functions."},
)
def narrow_process_group_functions() -> object:
    """The bridge's `init_process_group` and `new_group` lack torch's `device_id` and `group_desc`."""
    return [
        "device_id" in parameters_of(dist.init_process_group),
        "group_desc" in parameters_of(dist.new_group),
    ]


@assume(
    source=LATER + "core/torch_overwrites.py",
    expected=True,
    releases=">=1.20",
    means={"hpu-fsdp": "Lightning's `device_id` would raise a TypeError in the rendezvous."},
)
def wide_process_group_functions() -> object:
    """`init_process_group` takes all of torch's arguments, `pg_options` among them."""
    names = parameters_of(dist.init_process_group)
    return "pg_options" in names and ("device_id" in names or not _torch_has_device_id())


@assume(
    source=BRIDGE + "hpex/optimizers/__init__.py; " + LATER + "the names are gone",
    expected=False,
    releases=">=1.20",
    means={"hpu-compat": "programs that import the name keep working, and the error that we raise is wrong."},
)
def adam_with_mark_step_is_gone() -> object:
    """`hpex.optimizers` has no `Adam` of its own."""
    return hasattr(module("hpex.optimizers"), "Adam")


@assume(
    source=BRIDGE + "core/quantization.py lacks the names; " + LATER + "it has them",
    expected=True,
    releases=">=1.20",
    means={"hpu-precision": "inference in fp8 would have to use the older name."},
)
def inference_set_env_exists() -> object:
    """`core.hpu_inference_set_env` exists."""
    return hasattr(core(), "hpu_inference_set_env")


@assume(
    source=BRIDGE + "core/torch_overwrites.py:135-147",
    expected=[False, 7],
    means={
        "hpu-core": "`seed_everything` would take a card in the launching process.",
        "hpu-ddp": "ranks would start with random states that do not follow from the seed.",
    },
)
def manual_seed_reaches_the_card() -> object:
    """`torch.manual_seed` seeds the card's generator as well, and opens no card."""
    opened = opens_card(lambda: torch.manual_seed(7))
    return [opened, hpu().initial_seed()]


@assume(
    source=BRIDGE + "core/torch_overwrites.py, torch.random.fork_rng",
    expected=True,
    means={"hpu-bucketing": "the warm-up would not restore the card's random state."},
)
def fork_rng_covers_the_card() -> object:
    """`torch.random.fork_rng()` restores the state of the card's generator."""
    torch.ones(1, device="hpu")
    before = hpu().get_rng_state().clone()
    with torch.random.fork_rng():
        torch.randn(16, device="hpu").cpu()
    return torch.equal(before, hpu().get_rng_state())


@assume(
    source=BRIDGE + "scripts/env_flags.yaml:725 and backend/synapse_helpers/graph.cpp:845",
    expected=True,
    releases=">=1.19",
    means={"hpu-bucketing": "the warm-up would run each bucket instead of compiling it only."},
)
def compile_only_flag_exists() -> object:
    """The flag PT_COMPILE_ONLY_MODE can be set."""
    with bridge.compile_only() as exists:
        return exists


@assume(
    source="vllm-gaudi v1/worker/hpu_model_runner.py:6231-6241, its test for older stacks",
    expected=Contains("KeyError"),
    means={"hpu-bucketing": "an older bridge without the flag would not be recognized, and the warm-up would fail."},
)
def unknown_flag_is_a_key_error() -> object:
    """A flag that the bridge does not have is a KeyError."""

    def set_flag() -> None:
        with module("internal.bridge_config").env_setting("PT_HPU_NO_SUCH_FLAG", True):
            pass

    return error_of(set_flag)


def _torch_has_device_id() -> bool:
    return Version(torch.__version__).release >= (2, 3)
