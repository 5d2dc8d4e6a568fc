"""Tests of `initialize_hccl` and `select_device` with a fake bridge."""

import os
import re

import pytest

from hpu_core import _rendezvous_env, bridge, hccl, initialize_hccl

pytestmark = pytest.mark.usefixtures("fake_bridge")


@pytest.fixture(autouse=True)
def _no_selected_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reset the device that another test selected."""
    monkeypatch.setattr(hccl, "_selected", None)
    monkeypatch.setattr(hccl, "_saved", {})


def test_ranks_are_set_and_returned() -> None:
    """The process group opens the device on first use."""
    assert initialize_hccl(16, 9, 1) == (16, 9, 1)
    assert not bridge.is_open()
    assert [os.environ[name] for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK")] == ["16", "9", "1"]


@pytest.mark.parametrize(
    ("before", "ranks", "after"),
    [
        pytest.param({}, (8, 3, 3), {"HLS_MODULE_ID": "3"}, id="the default module is the local rank"),
        pytest.param({"HABANA_VISIBLE_MODULES": "4,6,7"}, (3, 1, 1), {"HLS_MODULE_ID": "6"}, id="a visible module"),
        # The bridge would keep the module of the launching process, and all ranks would open the same device.
        pytest.param({"HLS_MODULE_ID": "0"}, (2, 1, 1), {"HLS_MODULE_ID": "1"}, id="an inherited module is replaced"),
        # A wrapper of torchrun's ranks chooses the modules by NUMA node.
        pytest.param(
            {"HLS_MODULE_ID": "5", "TORCHELASTIC_USE_AGENT_STORE": "True"},
            (2, 1, 1),
            {"HLS_MODULE_ID": "5"},
            id="a rank of an engine keeps its module",
        ),
        pytest.param(
            {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"},
            (2, 1, 1),
            {"RANK": "1", "LOCAL_RANK": "1", "HLS_MODULE_ID": "1"},
            id="an inherited rank is replaced",
        ),
        # Without a launcher, only the user can have set the variable.
        pytest.param(
            {"HLS_MODULE_ID": "5", "HABANA_VISIBLE_MODULES": "5,6"},
            (1, 0, 0),
            {"HLS_MODULE_ID": "5"},
            id="a single process keeps its module",
        ),
        # The bridge opens the first free device.
        pytest.param({}, (1, 0, 0), {"HLS_MODULE_ID": None}, id="a single process selects no module"),
        # The bridge by itself ignores HABANA_VISIBLE_MODULES.
        pytest.param(
            {"HABANA_VISIBLE_MODULES": "6,7"}, (1, 0, 0), {"HLS_MODULE_ID": "6"}, id="a single process, visible modules"
        ),
        # The bridge's import sets MASTER_ADDR and MASTER_PORT=12345.
        pytest.param({}, (1, 0, 0), {"MASTER_ADDR": None, "MASTER_PORT": None}, id="no endpoint of the bridge"),
        pytest.param(
            {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29411"},
            (2, 0, 0),
            {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29411"},
            id="the launcher's endpoint is kept",
        ),
    ],
)
def test_environment(before: dict[str, str], ranks: tuple[int, int, int], after: dict[str, str | None]) -> None:
    os.environ.update(before)

    initialize_hccl(*ranks)

    assert {name: os.environ.get(name) for name in after} == after


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ("0,1", r"'0,1' must name a module for each process .* none for local rank 2"),
        ("all", r"HABANA_VISIBLE_MODULES must be .* got 'all'"),
    ],
)
def test_visible_modules_must_fit_the_ranks(modules: str, message: str) -> None:
    """The error precedes the bridge's own assertion at import."""
    os.environ.update(HABANA_VISIBLE_MODULES=modules, WORLD_SIZE="4", RANK="2", LOCAL_RANK="2")

    with pytest.raises(ValueError, match=message):
        initialize_hccl(4, 2, 2)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, 0, 0), "`world_size` must be at least 1, got 0"),
        ((4, 4, 0), "`rank` must be at least 0 and below `world_size`, which is 4, got 4"),
        ((4, -1, 0), "`rank` must be at least 0 and below `world_size`, which is 4, got -1"),
        ((4, 0, 4), "`local_rank` must be at least 0 and below `world_size`, which is 4, got 4"),
    ],
)
def test_invalid_arguments_raise_an_error(numbers: tuple[int, int, int], message: str) -> None:
    """The error precedes any change of the environment."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        initialize_hccl(*numbers)

    assert "HLS_MODULE_ID" not in os.environ


def test_other_open_device_raises_an_error() -> None:
    os.environ["HLS_MODULE_ID"] = "0"
    bridge.open_device()

    with pytest.raises(RuntimeError, match="local rank 1 must use module 1, but this process has already opened"):
        hccl.select_device(world_size=2, local_rank=1)
    with pytest.raises(RuntimeError, match="must use module 1, but this process has already opened a card"):
        initialize_hccl(2, 1, 1)


def test_select_device_keeps_an_open_device() -> None:
    """A second training in the same process uses the open device."""
    bridge.open_device()
    os.environ["HABANA_VISIBLE_MODULES"] = "2,3"

    hccl.select_device()

    assert "HLS_MODULE_ID" not in os.environ


def test_select_device_sets_no_rank() -> None:
    """A process that creates tensors before the rendezvous selects its device without setting its rank."""
    hccl.select_device(world_size=4, local_rank=2)

    assert os.environ["HLS_MODULE_ID"] == "2"
    assert not {"WORLD_SIZE", "RANK", "LOCAL_RANK"} & set(os.environ)


def test_restore_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of the user stay."""
    os.environ["ID"] = "before"
    monkeypatch.setenv("PT_OF_THE_USER", "1")
    names = ("HLS_MODULE_ID", "ID", "PT_OF_THE_USER", "PT_OF_A_STRATEGY")
    initialize_hccl(2, 1, 1)
    hccl.set_environment({"PT_OF_THE_USER": "0", "PT_OF_A_STRATEGY": "0"})
    during = [os.environ[name] for name in names]
    hccl.restore_environment()

    assert during == ["1", "1", "1", "0"]
    assert [os.environ.get(name) for name in names] == [None, "before", "1", None]


@pytest.mark.parametrize(
    ("inherited", "chosen", "after"),
    [((), "1", None), ((), "5", "5"), (("HLS_MODULE_ID",), "1", "1")],
    ids=["of the bridge's import", "of the program", "of a wrapper"],
)
def test_a_rank_of_an_engine_restores_its_module(
    inherited: tuple[str, ...], chosen: str, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rendezvous_env, "inherited_names", lambda: frozenset(inherited))
    os.environ.update(HLS_MODULE_ID=chosen, TORCHELASTIC_USE_AGENT_STORE="True")
    initialize_hccl(2, 1, 1)
    hccl.restore_environment()

    assert os.environ.get("HLS_MODULE_ID") == after


def test_listed_modules_are_selected() -> None:
    """The bridge opens no other card, and the environment is the user's again afterwards."""
    os.environ["HABANA_VISIBLE_MODULES"] = "4,5,6"
    os.environ["HLS_MODULE_ID"] = "4"
    hccl.select_device(2, 1, (6, 5))

    assert (os.environ["HABANA_VISIBLE_MODULES"], os.environ["HLS_MODULE_ID"]) == ("6,5", "5")
    hccl.restore_environment()
    assert (os.environ["HABANA_VISIBLE_MODULES"], os.environ["HLS_MODULE_ID"]) == ("4,5,6", "4")


def test_listed_module_replaces_the_variable_unless_a_card_is_open() -> None:
    os.environ["HLS_MODULE_ID"] = "3"
    hccl.select_device(modules=(1,))
    bridge.open_device()

    with pytest.warns(UserWarning, match=r"^`devices` selects module 2, but this process has already opened module 1"):
        hccl.select_device(modules=(2,))
    assert os.environ["HLS_MODULE_ID"] == "1"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_card_that_the_bridge_chose_stays(rank: int) -> None:
    """A program trains on one card and then on several. The bridge finds a free card for a rank whose own is in use."""
    bridge.open_device()
    hccl.select_device(world_size=2, local_rank=rank)

    assert "HLS_MODULE_ID" not in os.environ
    assert initialize_hccl(2, rank, rank) == (2, rank, rank)


def test_a_card_that_the_bridge_chose_is_not_one_of_those_that_are_visible_now() -> None:
    bridge.open_device()
    os.environ["HABANA_VISIBLE_MODULES"] = "2,3"

    with pytest.raises(RuntimeError, match="local rank 0 must use module 2"):
        hccl.select_device(world_size=2, local_rank=0)
