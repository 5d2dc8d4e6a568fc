"""Which card a rank gets, and what initialize_hccl leaves in the environment."""

import os
import re
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hpu_core import bridge, hccl, initialize_hccl

if TYPE_CHECKING:
    from conftest import FakeBridge

pytestmark = pytest.mark.usefixtures("fake_bridge")


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the device that another test selected."""
    monkeypatch.setattr(hccl, "_selected", None)
    monkeypatch.setattr(hccl, "_saved", {})


def test_the_ranks_numbers_are_set_and_returned() -> None:
    """The bridge confirms the numbers and sets torch's variables."""
    assert initialize_hccl(16, 9, 1) == (16, 9, 1)
    assert [os.environ[name] for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK")] == ["16", "9", "1"]


def test_a_rank_gets_the_module_of_its_local_rank() -> None:
    """Without HABANA_VISIBLE_MODULES the module is the local rank."""
    initialize_hccl(8, 3, 3)

    assert os.environ["HLS_MODULE_ID"] == "3"


def test_visible_modules_are_honoured() -> None:
    """The module is the local rank's entry of HABANA_VISIBLE_MODULES."""
    os.environ["HABANA_VISIBLE_MODULES"] = "4,6,7"

    initialize_hccl(3, 1, 1)

    assert os.environ["HLS_MODULE_ID"] == "6"


def test_an_inherited_module_is_corrected() -> None:
    """The bridge would keep the module of the launching process, and every rank would open the same card."""
    os.environ["HLS_MODULE_ID"] = "0"

    initialize_hccl(2, 1, 1)

    assert os.environ["HLS_MODULE_ID"] == "1"


def test_a_stale_rank_is_corrected() -> None:
    """Variables that were there before the call do not outlive it."""
    os.environ.update(WORLD_SIZE="2", RANK="0", LOCAL_RANK="0")

    initialize_hccl(2, 1, 1)

    assert [os.environ[name] for name in ("RANK", "LOCAL_RANK", "HLS_MODULE_ID")] == ["1", "1", "1"]


def test_a_single_process_keeps_its_own_module() -> None:
    """Somebody who runs one process on card 5 set the variable himself."""
    os.environ.update(HLS_MODULE_ID="5", HABANA_VISIBLE_MODULES="5,6")

    initialize_hccl(1, 0, 0)

    assert os.environ["HLS_MODULE_ID"] == "5"


def test_a_single_process_is_left_to_the_bridge() -> None:
    """Without any wish, the bridge takes the first free card."""
    initialize_hccl(1, 0, 0)

    assert "HLS_MODULE_ID" not in os.environ


def test_a_single_process_honours_visible_modules() -> None:
    """The bridge by itself would take the first free card, whatever HABANA_VISIBLE_MODULES says."""
    os.environ["HABANA_VISIBLE_MODULES"] = "6,7"

    initialize_hccl(1, 0, 0)

    assert os.environ["HLS_MODULE_ID"] == "6"


def test_the_fixed_port_is_not_left_behind() -> None:
    """The import of the bridge sets MASTER_ADDR and MASTER_PORT=12345; nobody asked for that."""
    initialize_hccl(1, 0, 0)

    assert not {"MASTER_ADDR", "MASTER_PORT"} & set(os.environ)


def test_the_launchers_port_stays() -> None:
    """What the launcher chose is not touched."""
    os.environ.update(MASTER_ADDR="10.0.0.1", MASTER_PORT="29411")

    initialize_hccl(2, 0, 0)

    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("10.0.0.1", "29411")


def test_no_card_is_opened() -> None:
    """The process group is what opens the card, in the rank that uses it."""
    initialize_hccl(8, 7, 7)

    assert not bridge.is_open()


def test_too_few_visible_modules_are_said_before_the_bridge_asserts() -> None:
    """Each process of a machine needs a module; the bridge would fail at import, with less to go by."""
    os.environ.update(HABANA_VISIBLE_MODULES="0,1", WORLD_SIZE="4", RANK="2", LOCAL_RANK="2")

    with pytest.raises(ValueError, match=r"'0,1' must name a module for each process .* none for local rank 2"):
        initialize_hccl(4, 2, 2)


def test_malformed_visible_modules_are_refused() -> None:
    """A value that the bridge would choke on is refused by name."""
    os.environ["HABANA_VISIBLE_MODULES"] = "all"

    with pytest.raises(ValueError, match=r"HABANA_VISIBLE_MODULES must be .* got 'all'"):
        initialize_hccl(2, 0, 0)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, 0, 0), "`world_size` must be at least 1, got 0"),
        ((4, 4, 0), "`rank` must be at least 0 and below `world_size`, which is 4, got 4"),
        ((4, -1, 0), "`rank` must be at least 0 and below `world_size`, which is 4, got -1"),
        ((4, 0, 4), "`local_rank` must be at least 0 and below `world_size`, which is 4, got 4"),
    ],
)
def test_numbers_out_of_range_are_refused(numbers: tuple[int, int, int], message: str) -> None:
    """Each number is checked against the world's size before anything is set."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        initialize_hccl(*numbers)

    assert "HLS_MODULE_ID" not in os.environ


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (("2", 0, 0), "`world_size` must be an integer, got '2'"),
        ((2, 0.0, 0), "`rank` must be an integer, got 0.0"),
        ((2, 0, True), "`local_rank` must be an integer, got True"),
    ],
)
def test_other_types_are_refused(numbers: tuple[Any, Any, Any], message: str) -> None:
    """Text, floats and booleans are mistakes, such as an environment variable that was not converted."""
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        initialize_hccl(*numbers)


def test_numpys_integers_are_integers() -> None:
    """What counts as an index is taken."""
    assert initialize_hccl(np.int64(2), np.int64(1), np.int64(1)) == (2, 1, 1)


def test_without_a_bridge_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot train does not look like a rank afterwards."""
    monkeypatch.setitem(sys.modules, "habana_frameworks", None)
    before = dict(os.environ)

    with pytest.raises(ModuleNotFoundError, match=r"bridge .* is not installed"):
        initialize_hccl(2, 1, 1)

    assert dict(os.environ) == before


def test_a_card_that_is_open_cannot_be_changed(fake_bridge: "FakeBridge") -> None:
    """Choosing another card after one has been opened would be without effect; it is an error."""
    bridge.open_device()

    with pytest.raises(RuntimeError, match="must use module 1, but this process has already opened a card"):
        initialize_hccl(2, 1, 1)


def test_the_right_card_may_be_open() -> None:
    """Telling a rank again what it already is changes nothing."""
    os.environ["HLS_MODULE_ID"] = "1"
    bridge.open_device()

    assert initialize_hccl(2, 1, 1) == (2, 1, 1)


def test_a_single_card_is_chosen_among_the_visible_ones() -> None:
    """One-card training opens a card that HABANA_VISIBLE_MODULES allows."""
    os.environ["HABANA_VISIBLE_MODULES"] = "2,3"

    hccl.select_device()

    assert os.environ["HLS_MODULE_ID"] == "2"


def test_a_single_card_that_is_open_stays() -> None:
    """A second training in the same process uses the card that it has."""
    bridge.open_device()
    os.environ["HABANA_VISIBLE_MODULES"] = "2,3"

    hccl.select_device()

    assert "HLS_MODULE_ID" not in os.environ


def test_a_rank_may_choose_its_card_before_it_is_one() -> None:
    """A process that makes tensors before the ranks meet gets its rank's card, and no rank yet."""
    hccl.select_device(world_size=4, local_rank=2)

    assert os.environ["HLS_MODULE_ID"] == "2"
    assert not {"WORLD_SIZE", "RANK", "LOCAL_RANK"} & set(os.environ)


def test_one_of_several_must_not_have_another_card_open() -> None:
    """Only a process that trains alone may keep whatever card it has."""
    bridge.open_device()

    with pytest.raises(RuntimeError, match="local rank 1 must use module 1"):
        hccl.select_device(world_size=2, local_rank=1)


def test_the_environment_is_restored() -> None:
    os.environ["ID"] = "before"
    initialize_hccl(2, 1, 1)
    during = (os.environ["HLS_MODULE_ID"], os.environ["ID"])
    hccl.restore_environment()

    assert during == ("1", "1")
    assert ("HLS_MODULE_ID" in os.environ, os.environ["ID"]) == (False, "before")


def test_a_process_may_train_again_on_its_device() -> None:
    """The selection outlives the variable, which is restored after each training."""
    initialize_hccl(2, 1, 1)
    bridge.open_device()
    hccl.restore_environment()

    assert initialize_hccl(2, 1, 1) == (2, 1, 1)
    assert os.environ["HLS_MODULE_ID"] == "1"


def test_listed_modules_are_selected() -> None:
    """The bridge opens no other card, and the environment is the user's again afterwards."""
    os.environ["HABANA_VISIBLE_MODULES"] = "4,5,6"
    os.environ["HLS_MODULE_ID"] = "4"
    hccl.select_device(2, 1, (6, 5))

    assert (os.environ["HABANA_VISIBLE_MODULES"], os.environ["HLS_MODULE_ID"]) == ("6,5", "5")
    hccl.restore_environment()
    assert (os.environ["HABANA_VISIBLE_MODULES"], os.environ["HLS_MODULE_ID"]) == ("4,5,6", "4")


def test_listed_module_replaces_the_variable_of_a_single_process() -> None:
    os.environ["HLS_MODULE_ID"] = "3"
    hccl.select_device(modules=(1,))

    assert os.environ["HLS_MODULE_ID"] == "1"


def test_open_device_stays_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    hccl.select_device(modules=(1,))
    monkeypatch.setattr(bridge, "is_open", lambda: True)

    with pytest.warns(UserWarning, match=r"^`devices` selects module 2, but this process has already opened module 1"):
        hccl.select_device(modules=(2,))
    assert os.environ["HLS_MODULE_ID"] == "1"
