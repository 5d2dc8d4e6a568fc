"""Opening a card, its errors, and queries that must not open one."""

import functools
import os

import torch

from hpu_core import bridge
from hpu_doctor.verify.assumption import SkippedError, Subject, at_least, matches, one_of
from hpu_doctor.verify.register._tools import BRIDGE, hpu, in_fork, opens_device, with_variables

SUBJECT = Subject("Opening a card, and devices")
assume = SUBJECT.assume

_QUERIES = BRIDGE + "hpu/__init__.py, device queries, and hpu/random.py"

SUBJECT.table(
    "queries-open-no-card",
    "Queries of cards, their number, their generation and of all random states open no card.",
    {
        "is_available": ([False, True], lambda: [opens_device(hpu().is_available), hpu().is_available()]),
        "device_count": ([False, at_least(1)], lambda: [opens_device(hpu().device_count), hpu().device_count()]),
        "_get_device_type": (
            [False, one_of("GAUDI", "GAUDI2", "GAUDI3")],
            lambda: [opens_device(bridge.generation), bridge.generation()],
        ),
        "get_rng_state_all": (False, lambda: opens_device(hpu().get_rng_state_all)),
    },
    source=_QUERIES + "; DeepSpeed, accelerate and optimum-habana ask for the type before they start ranks",
    means={
        "hpu-core": '`devices="auto"` or `device_name()` would take a card in the launching process.',
        "hpu-precision": "fp8 and float16 would be refused or allowed on the wrong generation.",
        "hpu-ray": "Ray's count of cards would take one.",
    },
)

SUBJECT.table(
    "calls-open-the-card",
    "`init`, `current_device` (always 0), `get_device_name`, functions of memory and `get_rng_state` open the card.",
    {
        # Each in a process of its own, as the first of them opens it.
        name: (expected, functools.partial(in_fork, function))
        for name, expected, function in (
            ("init", "True", lambda: opens_device(hpu().init)),
            ("current_device", "[True, 0]", lambda: [opens_device(hpu().current_device), hpu().current_device()]),
            (
                "get_device_name",
                matches(r"\[True, 'GAUDI[23]?'\]"),
                lambda: [opens_device(hpu().get_device_name), hpu().get_device_name()],
            ),
            ("memory_allocated", "True", lambda: opens_device(hpu().memory_allocated)),
            ("get_rng_state", "True", lambda: opens_device(hpu().get_rng_state)),
        )
    },
    source=_QUERIES,
    means={
        "hpu-core": "`open_device` would not tell early that there is no card, or a call open one where it must not.",
        "hpu-fsdp": "tensors and the process group would name different devices.",
        "hpu-ray": "the device of a worker would have another index than torch's.",
    },
)


@assume(
    source=BRIDGE + "hpu/__init__.py, device_count",
    expected=True,
    means={"hpu-core": "HABANA_VISIBLE_MODULES would be applied twice."},
)
def device_count_ignores_visible_modules() -> object:
    """`device_count()` does not depend on HABANA_VISIBLE_MODULES."""
    all_of_them = hpu().device_count()
    if hasattr(hpu().device_count, "_device_count"):
        # A cached number.
        del hpu().device_count._device_count  # noqa: SLF001 - the bridge has no other way.
    visible = with_variables({"HABANA_VISIBLE_MODULES": "0,1,2,3,4,5"}, hpu().device_count)
    return bool(all_of_them == visible)


SUBJECT.table(
    "dtypes-that-are-supported",
    "Gaudi 2 and later say that they support float16 and bfloat16.",
    {"float16": (True, bridge.is_fp16_supported), "bfloat16": (True, lambda: hpu().is_bf16_supported())},
    source="DeepSpeed accelerator/hpu_accelerator.py; Intel's table of dtypes; hpu/__init__.py",
    generations=("GAUDI2", "GAUDI3"),
    means={"hpu-precision": "`16-mixed` or `bf16-mixed` would be refused where they work."},
)


@assume(
    source=BRIDGE + "hpu/__init__.py, set_device",
    expected=[False, "1", "5"],
    means={
        "hpu-core": "a library that selects device 0 would move a rank from the module of its launcher.",
        "hpu-fsdp": "a device mesh, which selects the device by the local rank, would open a card too early.",
    },
)
def set_device_edits_the_module() -> object:
    """`set_device(1)` sets HLS_MODULE_ID where it is unset, keeps it where it is set, and opens no card."""

    def select(index: int) -> object:
        hpu().set_device(index)
        return os.environ.get("HLS_MODULE_ID")

    if hpu().device_count() < 2:  # noqa: PLR2004 - index 1 needs a second card.
        raise SkippedError("it needs two cards")
    first = with_variables({"HLS_MODULE_ID": None, "HABANA_VISIBLE_MODULES": "0,1"}, lambda: select(1))
    second = with_variables({"HLS_MODULE_ID": "5", "HABANA_VISIBLE_MODULES": "0,5"}, lambda: select(0))
    return [bridge.is_open(), first, second]


@assume(
    source="pytorch_helpers/habana_helpers/thread_pool/thread_pool.h:197-200; vLLM forces spawn",
    expected=False,
    means={
        "hpu-ddp": 'the launcher "fork" would work after a card was opened.',
        "hpu-core": "the check of forked data loader workers would be needless.",
    },
)
def forked_child_gets_no_numbers() -> object:
    """A child that was forked from a process with an open card gets no result from the card."""
    ones = torch.ones(3, device="hpu")
    hpu().synchronize()
    return in_fork(lambda: (ones + 1).cpu().tolist(), seconds=10) == "[2.0, 2.0, 2.0]"
