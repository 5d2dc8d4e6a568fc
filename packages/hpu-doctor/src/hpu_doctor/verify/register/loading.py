"""What importing the bridge does, the default mode, and what releases have or lack."""

import functools
import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from hpu_core import bridge
from hpu_doctor.verify.assumption import Subject, contains, error_of
from hpu_doctor.verify.register._tools import BRIDGE, hpu, module, with_variables

SUBJECT = Subject("Loading the bridge, and releases")
assume = SUBJECT.assume

_JOB = dict.fromkeys(("RANK", "WORLD_SIZE", "LOCAL_RANK", "HLS_MODULE_ID", "ID"))
_UNSET = {**_JOB, "MASTER_ADDR": None, "MASTER_PORT": None, "HABANA_VISIBLE_MODULES": None}


def _initialized(names: str, variables: Mapping[str, str] | None = None, **job: int) -> Any:
    """Return a function that returns variables after `initialize_distributed_hpu` in an environment with others."""

    def initialize() -> object:
        result = bridge.load_hccl().initialize_distributed_hpu(**job)
        return [os.environ.get(name) for name in names.split()] or list(result)

    return functools.partial(with_variables, {**_UNSET, **(variables or {})}, initialize)


_VISIBLE = {"HABANA_VISIBLE_MODULES": "3,5"}
_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "2"}
SUBJECT.table(
    "rank-selects-module",
    "`initialize_distributed_hpu` sets the variables of a rank, and HLS_MODULE_ID to its local rank, to that entry of "
    "HABANA_VISIBLE_MODULES, or to what it is already.",
    {
        "endpoint without a job": (["localhost", "12345"], _initialized("MASTER_ADDR MASTER_PORT")),
        "result without a job": ([1, -1, -1], _initialized("")),
        "rank 3 of 4": (
            ["4", "3", "1", "1", "3"],
            _initialized("WORLD_SIZE RANK LOCAL_RANK HLS_MODULE_ID ID", world_size=4, rank=3, local_rank=1),
        ),
        "visible modules": (["5"], _initialized("HLS_MODULE_ID", _VISIBLE, world_size=2, rank=1, local_rank=1)),
        "too few visible modules": (
            contains("There is not enough devices available for training"),
            _initialized("", _VISIBLE, world_size=4, rank=2, local_rank=2),
        ),
        "module that is set": (
            ["6"],
            _initialized("HLS_MODULE_ID", {"HLS_MODULE_ID": "6"}, world_size=2, rank=1, local_rank=1),
        ),
        "Open MPI": (["4", "3", "2"], _initialized("WORLD_SIZE RANK LOCAL_RANK", _MPI)),
    },
    source=BRIDGE + "distributed/hccl/__init__.py, initialize_distributed_hpu; milabench#302",
    means={
        "hpu-core": "two ranks could take one card, and the endpoint that its import sets would not be replaced.",
        "hpu-ddp": "a launcher would not have to replace the fixed endpoint.",
        "hpu-launch": "`--share` could not give two jobs of a machine different cards.",
    },
)


@assume(
    source=BRIDGE + "__init__.py; LeakPro#425",
    expected=False,
    means={"hpu-core": "discovery and `hpu-info` would take a card from a job that is about to start."},
)
def import_opens_no_card() -> object:
    """Importing the bridge opens no card."""
    return bridge.is_open()


def _has_hccl() -> bool:
    bridge.load_hccl()
    return hasattr(dist.Backend, "HCCL") or "hccl" in getattr(dist.Backend, "backend_list", [])


SUBJECT.table(
    "import-sets-up-torch",
    "Importing the bridge makes it `torch.hpu`, registers the backend hccl, and sets HABANA_PROFILE and "
    "TORCHINDUCTOR_COMPILE_THREADS where they are unset.",
    {
        "torch.hpu": (True, lambda: getattr(torch, "hpu", None) is hpu()),
        "hccl": (True, _has_hccl),
        "HABANA_PROFILE": ("profile_api_light", lambda: os.environ.get("HABANA_PROFILE")),
        "TORCHINDUCTOR_COMPILE_THREADS": ("1", lambda: os.environ.get("TORCHINDUCTOR_COMPILE_THREADS")),
    },
    source=BRIDGE + "__init__.py, core/__init__.py:121-125,147 and distributed/hccl/__init__.py",
    means={
        "hpu-core": "torch functions that ask for the module of a device type would fail on hpu.",
        "hpu-ddp": "process groups could not be created under the name hccl.",
        "hpu-fsdp": "FSDP and device meshes would find no module for hpu.",
        "hpu-profiler": "a trace would have no events of the card unless the user sets HABANA_PROFILE.",
        "hpu-bucketing": "compiling in the warm-up could start processes that inherit an open card.",
    },
)


SUBJECT.add(
    "default-mode-is-eager",
    "Without PT_HPU_LAZY_MODE the bridge is in eager mode.",
    bridge.is_lazy,
    source="vllm-fork README_GAUDI 1.21.0 (commit 7461f4ae1); Model-References 1.21.0",
    expected=False,
    releases=">=1.21",
    means={
        "hpu-core": "`mark_step` would be needed and is left out.",
        "hpu-fsdp": "FSDP, which needs eager mode, would be refused by default.",
    },
)


def _set_unknown_flag() -> None:
    with module("internal.bridge_config").env_setting("PT_HPU_NO_SUCH_FLAG", True):
        pass


@assume(
    source=BRIDGE + "scripts/env_flags.yaml:725 and backend/synapse_helpers/graph.cpp:845; vllm-gaudi tests for it",
    expected=[True, contains("KeyError")],
    releases=">=1.19",
    means={"hpu-bucketing": "the warm-up would run each bucket instead of compiling it only, or fail."},
)
def compile_only_flag_exists() -> object:
    """The flag PT_COMPILE_ONLY_MODE can be set, and a flag that the bridge does not have is a KeyError."""
    with bridge.compile_only() as exists:
        return [exists, error_of(_set_unknown_flag)]
