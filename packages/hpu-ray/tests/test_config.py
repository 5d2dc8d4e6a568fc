"""Tests of the configuration of Ray Train."""

from types import SimpleNamespace
from typing import Any

import pytest

ray = pytest.importorskip("ray.train")

from hpu_ray import HPUTorchConfig, _ray, config, scaling_config, worker_runtime_env  # noqa: E402 - needs Ray.


def test_workers_have_one_card_each() -> None:
    scaling = scaling_config(16, cpus_per_worker=8)

    assert scaling.num_workers == 16
    assert scaling.resources_per_worker == {"HPU": 1, "CPU": 8}


def test_process_group_is_that_of_hccl() -> None:
    """Ray's own default is gloo, which takes no hpu tensors."""
    assert HPUTorchConfig().backend == "hccl"
    assert HPUTorchConfig(timeout_s=60).to_dict()["timeout_s"] == 60


def test_workers_of_a_machine_see_its_modules_in_the_same_order() -> None:
    """The local rank selects one of them, as without Ray."""
    assigned = [("node-1", ["10"]), ("node-2", ["1"]), ("node-1", ["2"])]

    assert config._modules_by_worker(assigned) == ["2,10", "1", "2,10"]


def test_workers_import_the_bridge_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker is waited for before the last one has started."""
    calls: list[Any] = []

    def start(rank: int, _: object, modules: str) -> int:
        calls.append((rank, modules))
        return rank

    group = SimpleNamespace(execute=lambda _: [("node", ["0"]), ("node", ["1"])], execute_single_async=start)
    monkeypatch.setattr(_ray.ray, "get", calls.append)
    monkeypatch.setattr(_ray.TorchBackend, "on_start", lambda *_: None)

    config.HPUTorchBackend().on_start(group, HPUTorchConfig())

    assert calls == [(0, "0,1"), (1, "0,1"), [0, 1]]


@pytest.mark.parametrize("modules", [[], ["0", "1"]])
def test_a_worker_must_have_one_card(modules: list[str]) -> None:
    with pytest.raises(RuntimeError, match=rf"one card, got {len(modules)} for rank 1.*hpu_ray.scaling_config"):
        config._modules_by_worker([("node-1", ["0"]), ("node-1", modules)])


@pytest.mark.parametrize(("lazy_mode", "expected"), [(None, "1"), (True, "1"), (False, "0")])
def test_mode_is_set_before_the_bridge_loads(
    lazy_mode: bool | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")

    assert worker_runtime_env(lazy_mode=lazy_mode)["env_vars"]["PT_HPU_LAZY_MODE"] == expected


def test_variables_of_the_driver_reach_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray sets HABANA_VISIBLE_MODULES itself, and the others are not about cards."""
    for name in ("HCCL_OVER_OFI", "HABANA_VISIBLE_MODULES", "UNRELATED"):
        monkeypatch.setenv(name, "1")
    variables = worker_runtime_env(env_vars={"OTHER": "2"})["env_vars"]

    assert variables["HCCL_OVER_OFI"] == "1"
    assert variables["OTHER"] == "2"
    assert {"HABANA_VISIBLE_MODULES", "UNRELATED"}.isdisjoint(variables)
