"""Canary of the private names of torch that the planner uses."""

from __future__ import annotations

import inspect

import pytest
import torch

from hpu_sim.prediction import torch_tools


@pytest.mark.needs_torch("2.8", "interfaces for the planner")
def test_the_module_tracker_has_what_the_planner_overrides() -> None:
    tracker = torch_tools.module_tracker_class()()

    for name, parameters in {
        "_get_mod_name": ["mod"],
        "_maybe_set_engine_callback": [],
        "_get_pop_fn": ["w_mod", "name", "is_bw"],
        "register_user_hooks": ["pre_fw_hook", "post_fw_hook", "pre_bw_hook", "post_bw_hook"],
        "get_known_fqn": ["mod"],
    }.items():
        assert list(inspect.signature(getattr(tracker, name)).parameters) == parameters
    assert tracker.parents == {"Global"}


@pytest.mark.needs_torch("2.8", "interfaces for the planner")
def test_a_tensor_of_the_host_has_data() -> None:
    assert torch_tools.has_data(torch.ones(1))
    assert not torch_tools.has_data(torch.ones(1, device="hpu"))


def test_the_other_ranks_of_a_plan_have_set_what_this_one_has() -> None:
    store = torch_tools._store_class()()
    store.set("job/asked/0", "yes")

    assert store.get("job/asked/0") == store.get("job/asked/3") == b"yes"
    assert (store.add("count", 2), store.add("count", 1)) == (2, 3)
