"""The report of `hpu-info --json`. Its keys are stable: new ones may come, none goes or changes its meaning.

| key | value |
|---|---|
| `schema` | 1, raised only if a key ever has to change |
| `can_train` | whether training can start; the exit code is 0 then and 1 otherwise |
| `simulated` | whether the cards are the simulator's |
| `hpu_core`, `python` | versions |
| `cards` | a list with the fields of `hpu_core.discovery.HPUDevice` by their names; memory in bytes |
| `usable_cards` | how many cards this process may use; null when HABANA_VISIBLE_MODULES cannot be honoured |
| `visible_modules` | the value of HABANA_VISIBLE_MODULES, null when it is not set |
| `looked_at` | what each source answered: `source`, `place`, `found` |
| `driver_versions` | the different driver versions of the cards |
| `synapse` | `version` and `source`, both null when unknown |
| `release` | the row of the release table, by the fields of `hpu_core.releases.Release`; null when unknown |
| `torch` | `version`, and `error` when it cannot be imported |
| `lightning` | `used` (import name), `installed` (versions by import name), `error` |
| `bridge` | `installed`, `loaded`, `simulated`, `version`, `mode` ("lazy", "eager" or null) |
| `problems` | a list of `stops_training`, `what`, `todo` |
"""

import dataclasses
from typing import Any

from hpu_core.info._collect import Facts
from hpu_core.info._judge import Verdict
from hpu_core.releases import Release

SCHEMA = 1


def report(facts: Facts, verdict: Verdict) -> dict[str, Any]:
    """Return the report as plain data that `json` can write."""
    return {
        "schema": SCHEMA,
        "can_train": verdict.can_train,
        "simulated": facts.bridge.simulated,
        "hpu_core": facts.hpu_core,
        "python": facts.python,
        "cards": [dataclasses.asdict(device) for device in facts.devices],
        "usable_cards": facts.usable,
        "visible_modules": facts.visible_modules,
        "looked_at": [
            {"source": finding.source, "place": finding.place, "found": finding.found} for finding in facts.findings
        ],
        "driver_versions": sorted({device.driver_version for device in facts.devices if device.driver_version}),
        "synapse": {
            "version": str(facts.synapse.version) if facts.synapse else None,
            "source": facts.synapse.source if facts.synapse else None,
        },
        "release": _row(verdict.release) if verdict.release else None,
        "torch": {"version": facts.torch, "error": facts.torch_error},
        "lightning": dataclasses.asdict(facts.lightning),
        "bridge": dataclasses.asdict(facts.bridge),
        "problems": [dataclasses.asdict(problem) for problem in verdict.problems],
    }


def _row(release: Release) -> dict[str, Any]:
    """Return a row as plain data; `dataclasses.asdict` cannot, since it copies mappings and theirs is read-only."""
    row = {field.name: getattr(release, field.name) for field in dataclasses.fields(release)}
    date = release.date.isoformat() if release.date else None
    return {**row, "date": date, "sources": dict(release.sources)}
