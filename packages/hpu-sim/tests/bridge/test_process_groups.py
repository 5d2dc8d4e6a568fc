"""`init_process_group` and `new_group`: the bridge's up to 1.19, torch's after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_OLD = {"HPU_SIM_DEVICES": "1", "HPU_SIM_RELEASE": "1.19.0"}
_NEW = {"HPU_SIM_DEVICES": "1", "HPU_SIM_RELEASE": "1.20.0"}
_START = """
import torch
import torch.distributed as dist
import habana_frameworks.torch.distributed.hccl
"""
_INIT = 'dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)\n'
_END = "dist.destroy_process_group()\n"


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        ("dist.init_process_group('hccl', device_id=torch.device('hpu:0'))", "device_id"),
        ("dist.new_group([0], use_local_synchronization=True)", "use_local_synchronization"),
        ("dist.new_group([0], group_desc='x')", "group_desc"),
        ("dist.init_process_group()", "backend"),
    ],
)
def test_arguments_that_the_bridge_lacks_are_errors(call: str, argument: str, output_on: Callable[..., str]) -> None:
    program = _START + f"try:\n    {call}\nexcept TypeError as error:\n    print(error)"

    assert argument in output_on(program, **_OLD)


def test_after_1_19_the_functions_are_torchs(output_on: Callable[..., str]) -> None:
    c10d = "dist.distributed_c10d"
    program = f"{_START}print(dist.init_process_group is {c10d}.init_process_group, dist.new_group is {c10d}.new_group)"

    assert output_on(program, **_NEW) == "True True"


def test_groups_of_the_bridge_are_cached_until_they_are_destroyed(output_on: Callable[..., str]) -> None:
    program = f"""{_START}{_INIT}
first, again, whole = dist.new_group([0]), dist.new_group([0]), dist.new_group()
print(first is again, first is whole)
dist.destroy_process_group(first)
second = dist.new_group([0])
print(second is first)
{_END}{_INIT}
x = torch.ones(1, device='hpu')
dist.all_reduce(x, group=dist.new_group([0]))
print(x.item(), dist.new_group([0]) is second)
{_END}"""

    assert output_on(program, **_OLD) == "True False\nFalse\n1.0 False"


@pytest.mark.parametrize("value", ["0", "false"])
def test_the_cache_can_be_disabled(value: str, output_of: Callable[..., str]) -> None:
    program = _START + _INIT + "print(dist.new_group([0]) is dist.new_group([0]))\n" + _END

    assert output_of(program, PT_ENABLE_COMM_GROUP_CACHE=value, **_OLD) == "False"


def test_a_timeout_is_ignored(output_on: Callable[..., str]) -> None:
    """Collectives of the bridge never time out."""
    program = (
        _START
        + """
from datetime import timedelta
stock = dist.ProcessGroupGloo
def gloo(store, rank, size, options):
    print(options._timeout)
    return stock(store, rank, size, options)
gloo.__dict__.update({name: getattr(stock, name) for name in ("_Options", "create_device", "create_default_device")})
dist.ProcessGroupGloo = gloo
dist.init_process_group(
    "hccl", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=5)
)
dist.destroy_process_group()
"""
    )

    assert output_on(program, **_NEW) == "0:30:00"
