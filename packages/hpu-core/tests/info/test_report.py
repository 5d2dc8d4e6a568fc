"""The JSON report has stable, documented keys and holds plain data."""

import dataclasses
import json
import re
from collections.abc import Callable

from hpu_core.discovery import HPUDevice
from hpu_core.info import _report
from hpu_core.info._collect import Facts
from hpu_core.info._judge import Verdict, judge
from hpu_core.releases import Release

MakeFacts = Callable[..., Facts]


def test_the_keys_are_those_documented(facts: MakeFacts) -> None:
    """The table in the module's docstring names the keys of the report, no more and no fewer."""
    documented = {
        key for line in (_report.__doc__ or "").splitlines() for key in re.findall(r"`(\w+)`", line.partition(" | ")[0])
    }
    report = _report.report(facts(), judge(facts()))

    assert documented == set(report)


def test_it_is_json(facts: MakeFacts, bare_facts: Facts, simulated_facts: Facts) -> None:
    """Every report can be written and read back unchanged."""
    for machine in (facts(), bare_facts, simulated_facts):
        text = json.dumps(_report.report(machine, judge(machine)))

        assert json.loads(text)["usable_cards"] == machine.usable


def test_a_card_has_every_field(facts: MakeFacts) -> None:
    """A card is reported with the names of its fields."""
    cards = _report.report(facts(), judge(facts()))["cards"]

    assert [set(card) for card in cards] == [{field.name for field in dataclasses.fields(HPUDevice)}] * 8


def test_a_release_has_every_field(facts: MakeFacts) -> None:
    """The row is reported with the names of its fields."""
    row = _report.report(facts(), Verdict(release=Release(release="1.22.0"), problems=()))["release"]

    assert set(row) == {field.name for field in dataclasses.fields(Release)}


def test_simulated_is_said(simulated_facts: Facts) -> None:
    """A report about simulated cards says so at the top and at each card."""
    report = _report.report(simulated_facts, judge(simulated_facts))

    assert report["simulated"] is True
    assert all(card["simulated"] for card in report["cards"])


def test_what_is_unknown_is_null(bare_facts: Facts) -> None:
    """Nothing is made up for a machine without Gaudi."""
    report = _report.report(bare_facts, judge(bare_facts))

    assert (report["cards"], report["release"], report["synapse"]) == ([], None, {"version": None, "source": None})
    assert report["can_train"] is False
