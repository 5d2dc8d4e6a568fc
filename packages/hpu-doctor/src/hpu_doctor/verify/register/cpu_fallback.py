"""Operators that a card does not have, and run on the CPU or are refused."""

import torch

from hpu_core import bridge
from hpu_doctor.verify.assumption import Contains, Subject
from hpu_doctor.verify.register._tools import BRIDGE, error_of, returned_or_error

SUBJECT = Subject("Operators on the CPU")
assume = SUBJECT.assume

# Neither has a kernel in the bridge's list of operators (scripts/hpu_op.yaml, 1.19).
_OPERATOR = "aten::special_airy_ai"


@assume(
    source=BRIDGE + "hpu_ops/cpu_fallback.cpp:90-119",
    expected=["no error", True],
    mode="eager",
    means={
        "hpu-core": "a program that needs such an operator would fail instead of being slow.",
        "hpu-sim": "its findings about operators on the CPU would be errors on a card.",
    },
)
def missing_operator_runs_on_the_cpu() -> object:
    """An operator without a kernel runs on the CPU by default, and its result is on the card."""
    result = returned_or_error(_airy)
    return ["no error" if not isinstance(result, str) else result, getattr(result, "is_hpu", True)]


@assume(
    source=BRIDGE + "habana_kernels/fallback_helper.h:47-58; hpu/metrics.py",
    expected=[1, True],
    mode="eager",
    means={"hpu-core": "`telemetry` would not count operators on the CPU."},
)
def missing_operator_is_counted() -> object:
    """The metric cpu_fallback counts such an operator, by name."""
    before = bridge.metric("cpu_fallback").get("TotalNumber", 0)
    _airy()
    after = bridge.metric("cpu_fallback")
    return [int(str(after["TotalNumber"])) - int(str(before)), "special_airy_ai" in str(after["FallbackOps"])]


@assume(
    source=BRIDGE + "hpu_ops/cpu_fallback.cpp:90-119",
    expected=Contains("is not yet supported on HPU"),
    mode="eager",
    quick=False,
    variables={"PT_HPU_PLACE_ON_CPU": "none"},
    simulator="strict",
    means={"hpu-doctor": "`explain` would not know the message."},
)
def missing_operator_can_be_refused() -> object:
    """With PT_HPU_PLACE_ON_CPU=none such an operator is an error."""
    return error_of(_airy)


@assume(
    source=BRIDGE + "scripts/hpu_op.yaml",
    expected=0,
    mode="eager",
    means={
        "hpu-core": "a plain training step would leave the card.",
        "hpu-sim": "its list of operators on the card would be wrong.",
    },
)
def training_step_stays_on_the_card() -> object:
    """A step of a small network with Adam has no operator on the CPU."""
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8)).to("hpu")
    optimizer = torch.optim.Adam(net.parameters())
    before = bridge.metric("cpu_fallback")["TotalNumber"]
    torch.nn.functional.mse_loss(net(torch.ones(4, 8, device="hpu")), torch.zeros(4, 8, device="hpu")).backward()
    optimizer.step()
    bridge.synchronize()
    return int(str(bridge.metric("cpu_fallback")["TotalNumber"])) - int(str(before))


def _airy() -> object:
    return torch.special.airy_ai(torch.ones(2, device="hpu"))
