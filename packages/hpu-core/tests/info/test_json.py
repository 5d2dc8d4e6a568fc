"""Tests of the JSON report."""

import dataclasses
import json
import re
from collections.abc import Callable

from hpu_core.discovery import HPUDevice
from hpu_core.info import _json
from hpu_core.info._collect import SystemInfo
from hpu_core.info._diagnose import Diagnosis, diagnose
from hpu_core.releases import Release

MakeSystem = Callable[..., SystemInfo]


def test_docstring_lists_every_key(make_system: MakeSystem) -> None:
    documented = {
        key for line in (_json.__doc__ or "").splitlines() for key in re.findall(r"`(\w+)`", line.partition(" | ")[0])
    }
    report = _json.to_json(make_system(), diagnose(make_system()))

    assert documented == set(report)


def test_report_is_json(make_system: MakeSystem, bare_system: SystemInfo, simulated_system: SystemInfo) -> None:
    for machine in (make_system(), bare_system, simulated_system):
        text = json.dumps(_json.to_json(machine, diagnose(machine)))

        assert json.loads(text)["usable_cards"] == machine.usable


def test_card_has_every_field(make_system: MakeSystem) -> None:
    cards = _json.to_json(make_system(), diagnose(make_system()))["cards"]

    assert [set(card) for card in cards] == [{field.name for field in dataclasses.fields(HPUDevice)}] * 8


def test_release_has_every_field(make_system: MakeSystem) -> None:
    row = _json.to_json(make_system(), Diagnosis(release=Release(release="1.22.0"), problems=()))["release"]

    assert set(row) == {field.name for field in dataclasses.fields(Release)}


def test_simulated_machine_and_cards_are_marked(simulated_system: SystemInfo) -> None:
    report = _json.to_json(simulated_system, diagnose(simulated_system))

    assert report["simulated"] is True
    assert all(card["simulated"] for card in report["cards"])


def test_unknown_values_are_null(bare_system: SystemInfo) -> None:
    report = _json.to_json(bare_system, diagnose(bare_system))

    assert (report["cards"], report["release"], report["synapse"]) == ([], None, {"version": None, "source": None})
    assert report["can_train"] is False
