"""Opening a card, its errors, and queries that must not open one."""

import os
import re

import torch
from torch.utils import checkpoint

from hpu_core import bridge
from hpu_core.discovery import usable_modules
from hpu_doctor.verify.assumption import AtLeast, Contains, Matches, NotTriedError, OneOf, Subject
from hpu_doctor.verify.register._tools import (
    BRIDGE,
    TORCH,
    error_of,
    hpu,
    in_fork,
    module,
    opens_card,
    with_variables,
)

SUBJECT = Subject("Opening a card, and devices")
assume = SUBJECT.assume

_LATER_GENERATIONS = ("GAUDI2", "GAUDI3")


@assume(
    source=BRIDGE + "hpu/__init__.py, device queries",
    expected=[False, True],
    means={"hpu-core": "asking whether there is a card would take one from a job."},
)
def is_available_opens_no_card() -> object:
    """`is_available()` is True and opens no card."""
    return [opens_card(hpu().is_available), hpu().is_available()]


@assume(
    source=BRIDGE + "hpu/__init__.py, device queries",
    expected=[False, AtLeast(1)],
    means={
        "hpu-core": '`devices="auto"` would take a card in the launching process, and one rank would find none.',
        "hpu-ray": "Ray's count of cards would take one.",
    },
)
def device_count_opens_no_card() -> object:
    """`device_count()` opens no card."""
    return [opens_card(hpu().device_count), hpu().device_count()]


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


@assume(
    source="DeepSpeed, accelerate and optimum-habana call it before they start ranks",
    expected=[False, OneOf("GAUDI", "GAUDI2", "GAUDI3")],
    means={
        "hpu-core": "`device_name()` would take a card, or not know the generation.",
        "hpu-precision": "fp8 and float16 would be refused or allowed on the wrong generation.",
    },
)
def generation_opens_no_card() -> object:
    """`utils.experimental._get_device_type()` names the generation and opens no card."""
    return [opens_card(bridge.generation), bridge.generation()]


@assume(
    source="DeepSpeed accelerator/hpu_accelerator.py; " + "Intel's table of dtypes",
    expected=True,
    generations=_LATER_GENERATIONS,
    means={"hpu-precision": "`16-mixed` would be refused where it works."},
)
def float16_from_gaudi2() -> object:
    """Gaudi 2 and later support float16."""
    return bridge.is_fp16_supported()


@assume(
    source=BRIDGE + "hpu/__init__.py, init",
    expected=True,
    means={"hpu-core": "`open_device` would not tell early that there is no card."},
)
def init_opens_the_card() -> object:
    """`init()` opens the card."""
    return opens_card(hpu().init)


@assume(
    source=BRIDGE + "hpu/__init__.py, current_device",
    expected=[True, 0],
    means={
        "hpu-fsdp": "tensors and the process group would name different devices.",
        "hpu-ray": "the device of a worker would have another index than torch's.",
    },
)
def current_device_is_0() -> object:
    """`current_device()` opens the card and is 0 in every process."""
    return [opens_card(hpu().current_device), hpu().current_device()]


@assume(
    source=BRIDGE + "hpu/__init__.py, get_device_name",
    expected=[True, Matches("GAUDI[23]?")],
    means={"hpu-core": "`device_name()` avoids a call that would open no card."},
)
def device_name_opens_the_card() -> object:
    """`get_device_name()` opens the card, and returns GAUDI, GAUDI2 or GAUDI3."""
    return [opens_card(hpu().get_device_name), hpu().get_device_name()]


@assume(
    source=BRIDGE + "hpu/__init__.py, get_device_capability",
    expected="str",
    means={"hpu-sim": "torch code that expects a pair of numbers would work on a card and not here."},
)
def capability_is_text() -> object:
    """`get_device_capability()` is text, not a pair of numbers."""
    return type(hpu().get_device_capability()).__name__


@assume(
    source=BRIDGE + "hpu/__init__.py, get_device_properties",
    expected=[
        "sramBaseAddress",
        "dramBaseAddress",
        "sramSize",
        "dramSize",
        "tpcEnabledMask",
        "dramEnabled",
        "fd",
        "device_id",
        "device_type",
    ],
    means={"hpu-core": "the memory of a card could be read from an attribute, as on other devices."},
)
def properties_are_text() -> object:
    """`get_device_properties()` is text with nine names and values."""
    text = hpu().get_device_properties()
    return re.findall(r"(\w+)\s*[=:]", text) if isinstance(text, str) else type(text).__name__


@assume(
    source="LeakPro#425, tgi-gaudi#93; backend/synapse_helpers/device.cpp",
    expected=Contains("Device acquire failed"),
    means={
        "hpu-core": "the hint at a second opener would not be shown.",
        "hpu-doctor": "`explain` would not know the error of a card in use.",
    },
)
def second_process_is_refused() -> object:
    """A card that a process has opened cannot be opened by another one."""
    modules = usable_modules()
    chosen = str(modules[0] if modules else 0)
    os.environ.update(HLS_MODULE_ID=chosen, HABANA_VISIBLE_MODULES=chosen)
    read, write = os.pipe()

    def open_second() -> str:
        # Not before the parent has opened it.
        os.read(read, 1)
        return error_of(hpu().init)

    def open_first() -> None:
        hpu().init()
        os.write(write, b"1")

    return in_fork(open_second, meanwhile=open_first)


@assume(
    source="LeakPro#425; optimum-habana#1611",
    expected=Contains("Device acquire failed"),
    means={"hpu-core": "a wrong HLS_MODULE_ID would open some other card."},
)
def missing_module_is_refused() -> object:
    """An HLS_MODULE_ID without a card is an error."""
    wrong = {"HLS_MODULE_ID": "63", "HABANA_VISIBLE_MODULES": "63"}
    return with_variables(wrong, lambda: error_of(hpu().init))


@assume(
    source="the driver frees a card with its process; no published text",
    expected=["no error", True],
    means={
        "hpu-launch": "a restarted rank would find its card taken.",
        "hpu-core": "the failure detection would have to wait before a restart.",
    },
)
def exit_frees_the_card() -> object:
    """A card is free again when the process that opened it has exited."""
    return [in_fork(lambda: error_of(hpu().init)), opens_card(hpu().init)]


@assume(
    source="the guard of the bridge's C++ sources: habana active device != 0",
    expected=Contains("active device"),
    means={
        "hpu-ddp": "`device_ids` with an index would work.",
        "hpu-ray": "Ray's own devices with an index would work.",
    },
)
def index_above_0_is_refused() -> object:
    """A tensor cannot be created on hpu:1."""
    return error_of(lambda: torch.empty(1, device="hpu:1"))


@assume(
    source=BRIDGE + "hpu/__init__.py; lightning-habana hands out the device without an index",
    expected="hpu:0",
    means={"hpu-core": "comparing a tensor's device with the strategy's would fail."},
)
def tensors_are_on_index_0() -> object:
    """A tensor that was created on "hpu" is on hpu:0."""
    return str(torch.empty(1, device="hpu").device)


@assume(
    source=BRIDGE + "hpu/__init__.py, set_device",
    expected=[False, "1"],
    means={"hpu-fsdp": "a device mesh, which selects the device by the local rank, would open a card too early."},
)
def set_device_edits_the_module() -> object:
    """With HABANA_VISIBLE_MODULES, `set_device(1)` sets HLS_MODULE_ID and opens no card."""

    def select() -> object:
        opened = opens_card(lambda: hpu().set_device(1))
        return [opened, os.environ.get("HLS_MODULE_ID")]

    if hpu().device_count() < 2:  # noqa: PLR2004 - index 1 needs a second card.
        raise NotTriedError("it needs two cards")
    return with_variables({"HLS_MODULE_ID": None, "HABANA_VISIBLE_MODULES": "0,1"}, select)


@assume(
    source=BRIDGE + "hpu/__init__.py, set_device",
    expected="5",
    means={"hpu-core": "a library that selects device 0 would move a rank from the module of its launcher."},
)
def set_device_keeps_the_module() -> object:
    """`set_device` keeps the module of HLS_MODULE_ID, whatever the index is."""

    def select() -> object:
        hpu().set_device(0)
        return os.environ["HLS_MODULE_ID"]

    return with_variables({"HLS_MODULE_ID": "5", "HABANA_VISIBLE_MODULES": "0,5"}, select)


@assume(
    source=BRIDGE + "hpu/__init__.py: Invalid device id",
    expected=Contains("Invalid device id"),
    means={"hpu-doctor": "`explain` would not know the message."},
)
def invalid_index_is_named() -> object:
    """A query of a card that does not exist says "Invalid device id"."""
    return error_of(lambda: hpu().get_device_name(63))


@assume(
    source=BRIDGE + "hpu/__init__.py: Expected a hpu device",
    expected=Contains("Expected a hpu device, but got"),
    means={"hpu-doctor": "`explain` would not know the message."},
)
def other_device_is_named() -> object:
    """A query of a device of another type says "Expected a hpu device, but got"."""
    return error_of(lambda: hpu().get_device_name("cpu"))


@assume(
    source=BRIDGE + "hpu/__init__.py, synchronize",
    expected=Contains("TypeError"),
    means={"hpu-core": "Lightning's calls with a device would not have to be replaced."},
)
def synchronize_takes_no_device() -> object:
    """`synchronize` takes no argument."""
    return error_of(lambda: hpu().synchronize(0))


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


@assume(
    source=BRIDGE + "hpu/__init__.py, get_gencode_flags and get_arch_list",
    expected=["", True],
    means={"hpu-sim": "code that looks for generated code would see it on a card only."},
)
def no_generated_code() -> object:
    """`get_gencode_flags()` is empty, and `get_arch_list()` has the name of the card."""
    return [hpu().get_gencode_flags(), hpu().get_arch_list() == [hpu().get_device_name()]]


@assume(
    source=BRIDGE + "hpu/__init__.py, is_bf16_supported",
    expected=True,
    means={"hpu-precision": "`bf16-mixed` would be refused by code that asks."},
)
def bf16_is_supported() -> object:
    """`is_bf16_supported()` is True."""
    return hpu().is_bf16_supported()


@assume(
    source="torch.utils.checkpoint reads it (" + TORCH + ")",
    expected=Contains("is_initialized"),
    means={"hpu-core": "`is_open` would not know whether a card is open."},
)
def initialized_flag_exists() -> object:
    """`torch.hpu` has `is_initialized`, and `_initialized` that torch's checkpointing reads."""
    return " ".join(name for name in ("is_initialized", "_initialized") if hasattr(hpu(), name))


@assume(
    source=BRIDGE + "hpu/__init__.py, DefaultDeviceType.set_device_type",
    expected="hpu",
    means={"hpu-fsdp": "activation checkpointing would not restore the card's random state."},
)
def opening_sets_checkpoint_device() -> object:
    """Opening the card makes hpu the default device of activation checkpointing."""
    hpu().init()
    default = getattr(checkpoint, "DefaultDeviceType", None)
    return "hpu" if default is None else default.get_device_type()


@assume(
    source=BRIDGE + "hpu/__init__.py, can_device_access_peer",
    expected=Contains("Both the ids are same"),
    means={"hpu-sim": "code that asks for direct access between cards would take another path on a card."},
)
def card_is_no_peer_of_itself() -> object:
    """`can_device_access_peer(0, 0)` is an error."""
    return error_of(lambda: hpu().can_device_access_peer(0, 0))


@assume(
    source=BRIDGE + "hpu/streams.py",
    expected=[True, "no error"],
    means={"hpu-fsdp": "FSDP2, which waits for events on side streams, would wait forever or not at all."},
)
def event_completes() -> object:
    """After `synchronize()` an event that was recorded before is complete, and its time can be read."""
    first, last = hpu().Event(enable_timing=True), hpu().Event(enable_timing=True)
    first.record()
    torch.ones(8, device="hpu").mul_(2)
    last.record()
    hpu().synchronize()
    return [bool(last.query()), error_of(lambda: first.elapsed_time(last))]


@assume(
    source=BRIDGE + "hpu/streams.py: Both events must be recorded before calculating elapsed time.",
    expected=Contains("must be recorded"),
    means={"hpu-doctor": "`explain` would not know the message."},
)
def unrecorded_events_have_no_time() -> object:
    """The time between events that were not recorded is an error."""
    event = hpu().Event
    return error_of(lambda: event(enable_timing=True).elapsed_time(event(enable_timing=True)))


@assume(
    source=BRIDGE + "HABANA PT BRIDGE CONFIGURATION, printed at the first acquire",
    expected="no error",
    means={"hpu-profiler": "its own output would mix with the bridge's."},
    simulator="hardware",
    reason="the simulator prints a line of its own, which says that it is simulated",
)
def first_open_works() -> object:
    """Opening the first card prints the bridge's configuration and raises nothing."""
    return error_of(hpu().init)


@assume(
    source=BRIDGE + "utils/experimental; optimum-habana compares it with htexp.synDeviceType",
    expected=["synDeviceGaudi", "synDeviceGaudi2", "synDeviceGaudi3"],
    means={"hpu-core": "the name of a generation would be unknown."},
)
def names_of_generations() -> object:
    """`utils.experimental.synDeviceType` has a member per generation."""
    kinds = module("utils.experimental").synDeviceType
    return [name for name in ("synDeviceGaudi", "synDeviceGaudi2", "synDeviceGaudi3") if hasattr(kinds, name)]
