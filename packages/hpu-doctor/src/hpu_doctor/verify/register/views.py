"""Strides, views, storages and arguments on the CPU."""

import ctypes

import torch

from hpu_doctor.verify.assumption import Contains, Matches, Subject
from hpu_doctor.verify.register._tools import BRIDGE, error_of, hpu, in_fork

SUBJECT = Subject("Strides, views and storages")
assume = SUBJECT.assume


@assume(
    source=BRIDGE + "habana_eager/eager_op.h:440-468 and backend/habana_operator.h:309",
    expected=True,
    mode="eager",
    simulator="strict",
    means={
        "hpu-sim": "a `view` that fails on a card would pass.",
        "hpu-compile": "compiled and eager code would see other strides.",
    },
)
def results_are_contiguous() -> object:
    """The result of an operator on a transposed tensor is contiguous."""
    return (torch.ones(3, 4, device="hpu").t() + 1).is_contiguous()


@assume(
    source=BRIDGE + "hpu_ops/backend/clone_gen.cpp:25-29",
    expected=True,
    mode="eager",
    simulator="strict",
    means={"hpu-sim": "a clone would keep strides that it has not on a card."},
)
def clones_are_contiguous() -> object:
    """A clone of a transposed tensor is contiguous."""
    return torch.ones(3, 4, device="hpu").t().clone().is_contiguous()


@assume(
    source=BRIDGE + "habana_eager/ops/view.cpp:29-54",
    expected=[5.0, 5.0],
    means={
        "hpu-ddp": "gradients as views into buckets would not see reductions.",
        "hpu-fsdp": "flat parameters would not share memory with the module's.",
    },
)
def views_share_memory() -> object:
    """Writing to a view changes its base, and the other way round."""
    base = torch.zeros(4, device="hpu")
    view = base[1:3]
    view.fill_(5)
    first = base.cpu()[1].item()
    base.add_(0)
    return [first, view.cpu()[0].item()]


@assume(
    source=BRIDGE + "copy_from.cpp:425-446",
    expected=[[0.0, 7.0], [0.0, 7.0]],
    means={"hpu-fsdp": "copies into columns of a flat buffer would be lost."},
)
def writes_to_strided_views() -> object:
    """A write to a non-contiguous view, such as a column, reaches the base."""
    base = torch.zeros(2, 2, device="hpu")
    base[:, 1] = 7
    return base.cpu().tolist()


@assume(
    source=BRIDGE + "copy_from.cpp:160-201",
    expected=[[1, 4], [2, 5], [3, 6]],
    means={"hpu-core": "checkpoints of transposed tensors would be wrong."},
)
def copies_keep_the_order() -> object:
    """A transposed tensor comes back from the card with its elements in order."""
    return torch.tensor([[1, 2, 3], [4, 5, 6]]).to("hpu").t().cpu().tolist()


@assume(
    source=BRIDGE + "habana_kernels/lazy_kernels.cpp:6418-6443; a field report of FSDP",
    expected=Contains("should not be called in lazy flow"),
    mode="lazy",
    means={"hpu-fsdp": "FSDP is refused in lazy mode where it would work."},
)
def storages_cannot_be_resized_in_lazy_mode() -> object:
    """Freeing a tensor's storage by `resize_(0)` is refused in lazy mode."""
    tensor = torch.ones(4, device="hpu")
    return error_of(lambda: tensor.untyped_storage().resize_(0))


@assume(
    source="FSDP of torch frees storages so; Intel's page of FSDP names eager mode",
    expected=[0, "no error"],
    mode="eager",
    means={"hpu-fsdp": "FSDP could not free gathered parameters."},
)
def storages_can_be_resized_in_eager_mode() -> object:
    """A storage can be freed by `resize_(0)` and grown again in eager mode."""
    tensor = torch.ones(4, device="hpu")
    tensor.untyped_storage().resize_(0)
    size = tensor.untyped_storage().size()
    return [size, error_of(lambda: tensor.untyped_storage().resize_(16))]


@assume(
    source=BRIDGE + "habana_kernels/lazy_kernels.cpp:6418-6443",
    expected=Contains("should not be called in lazy flow"),
    mode="lazy",
    means={"hpu-sim": "torch's parametrizations, which call it, would run on a card."},
)
def set_is_refused_in_lazy_mode() -> object:
    """`set_` to another tensor is refused in lazy mode."""
    tensor, other = torch.ones(4, device="hpu"), torch.zeros(4, device="hpu")
    return error_of(lambda: tensor.set_(other))  # type: ignore[call-overload]


@assume(
    source=BRIDGE + "habana_kernels/lazy_kernels.cpp:1481-1484",
    expected=Contains("as_strided_ called with strides creating non-contiguous output"),
    mode="lazy",
    simulator="strict",
    means={"hpu-sim": "a program that fails on a card in lazy mode would pass."},
)
def as_strided_must_be_contiguous_in_lazy_mode() -> object:
    """`as_strided_` to a non-contiguous view is refused in lazy mode."""
    tensor = torch.ones(8, device="hpu")
    return error_of(lambda: tensor.as_strided_((2, 2), (1, 4)).cpu())


@assume(
    source=BRIDGE + "habana_eager/eager_op.cpp:71-99",
    expected=Contains("Expected all tensors to be on the"),
    mode="eager",
    means={"hpu-doctor": "`explain` would not know the message."},
)
def cpu_argument_is_refused() -> object:
    """An operator of a tensor on the card and one on the CPU is an error."""
    return error_of(lambda: torch.ones(2, device="hpu") + torch.ones(2))


@assume(
    source=BRIDGE + "habana_eager/eager_op.cpp:71-99",
    expected=Contains("Expected all tensors to be on the HPU device, but found at least one input[idx="),
    mode="eager",
    simulator="strict",
    means={"hpu-doctor": "`explain` would not know the message."},
)
def cpu_argument_is_named() -> object:
    """The error for an argument on the CPU has the argument's index."""
    return error_of(lambda: torch.ones(2, device="hpu") + torch.ones(2))


@assume(
    source=BRIDGE + "habana_eager/eager_op.cpp:71-99",
    expected=3.0,
    means={"hpu-core": "factors that modules keep as scalars on the CPU would be refused."},
)
def cpu_scalar_is_a_number() -> object:
    """A tensor of no dimension on the CPU counts as a number."""
    return (torch.ones(2, device="hpu") + torch.tensor(2.0)).cpu()[0].item()


@assume(
    source="the memory of a card is not mapped into the process",
    expected=Matches("no result: was ended by SIG(SEGV|BUS|ABRT)"),
    simulator="strict",
    means={"hpu-sim": "code that reads device memory on the host would work here only."},
)
def device_memory_is_not_the_hosts() -> object:
    """Reading at a tensor's `data_ptr()` from the host ends the process."""
    tensor = torch.ones(1 << 16, device="hpu")
    hpu().synchronize()
    return in_fork(lambda: ctypes.string_at(tensor.data_ptr(), 4), seconds=10)


@assume(
    source=BRIDGE + "core/torch_overwrites.py, weight sharing, on by default",
    expected=True,
    means={"hpu-core": "tied weights would be trained apart after `.to`."},
)
def tied_weights_stay_tied() -> object:
    """Two modules with one parameter share it after they have been moved to the card."""
    pair = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    pair[1].weight = pair[0].weight
    pair.to("hpu")
    return pair[0].weight is pair[1].weight


@assume(
    source="bridge tests of 1.19 save and load; lightning-habana moves to the CPU first",
    expected=["cpu", "hpu:0"],
    means={"hpu-core": "`HPUCheckpointIO` could not load a checkpoint onto the card."},
)
def checkpoints_load_to_both() -> object:
    """A tensor of the card, moved to the CPU and saved, loads to the CPU and with `map_location` to the card."""
    torch.save({"w": torch.ones(2, device="hpu").cpu()}, "saved.pt")
    return [str(torch.load("saved.pt", map_location=place)["w"].device) for place in ("cpu", "hpu")]


@assume(
    source=BRIDGE + "core/torch_overwrites.py, torch.save",
    expected=[2.0, False],
    mode="lazy",
    simulator="hardware",
    reason="its `torch.save` is torch's own from torch 2.1 on",
    means={"hpu-core": "checkpoints in lazy mode would keep shared storages without its own pickling."},
)
def saving_copies_tensors_in_lazy_mode() -> object:
    """In lazy mode `torch.save` copies each tensor to the CPU by itself, so that tensors no longer share storages."""
    whole = torch.full((4,), 2.0, device="hpu")
    torch.save([whole, whole[:2]], "saved.pt")
    first, second = torch.load("saved.pt", map_location="cpu")
    return [second[0].item(), first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()]


@assume(
    source=BRIDGE + "HPUHooks, pinned allocator; copy_from.cpp:335-365",
    expected=[True, [1.0, 1.0]],
    releases=">=1.19",
    means={"hpu-core": "`pin_memory=True` of a DataLoader would fail or have no effect."},
)
def pinned_memory_copies() -> object:
    """Memory can be pinned for the card, and a non-blocking copy from it arrives."""
    hpu().init()
    pinned = torch.ones(2).pin_memory()
    moved = pinned.to("hpu", non_blocking=True)
    hpu().synchronize()
    return [pinned.is_pinned(), moved.cpu().tolist()]
