"""JSON report of `hpu-info --json`. Its keys are stable: new keys may be added, and none is removed or redefined.

| key | value |
|---|---|
| `schema` | 1; raised if a key has to change |
| `can_train` | whether training can start; the exit code is 0 if so and 1 otherwise |
| `simulated` | whether the cards are simulated |
| `hpu_core`, `python` | versions |
| `cards` | list of cards, with the fields of `hpu_core.discovery.HPUDevice`; memory in bytes |
| `usable_cards` | number of cards that this process may use; null if HABANA_VISIBLE_MODULES is invalid |
| `visible_modules` | value of HABANA_VISIBLE_MODULES; null if it is not set |
| `sources` | result of each source of discovery: `source`, `location`, `message` |
| `driver_versions` | different driver versions of the cards |
| `synapse` | `version` and `source`; both null if unknown |
| `release` | row of the release table, with the fields of `hpu_core.releases.Release`; null if unknown |
| `torch` | `version`, and `error` if it cannot be imported |
| `lightning` | `used` (import name), `installed` (versions by import name), `error` |
| `bridge` | `installed`, `loaded`, `simulated`, `version`, `mode` ("lazy", "eager" or null) |
| `problems` | list of `blocks_training`, `message`, `hint` |
"""

import dataclasses
from typing import Any

from hpu_core.info._collect import SystemInfo
from hpu_core.info._diagnose import Diagnosis
from hpu_core.releases import Release

SCHEMA = 1


def to_json(system: SystemInfo, diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the report as plain data that `json` can serialize."""
    return {
        "schema": SCHEMA,
        "can_train": diagnosis.can_train,
        "simulated": system.bridge.simulated,
        "hpu_core": system.hpu_core,
        "python": system.python,
        "cards": [dataclasses.asdict(device) for device in system.devices],
        "usable_cards": system.usable,
        "visible_modules": system.visible_modules,
        "sources": [
            {"source": source.source, "location": source.location, "message": source.message}
            for source in system.sources
        ],
        "driver_versions": sorted({device.driver_version for device in system.devices if device.driver_version}),
        "synapse": {
            "version": str(system.synapse.version) if system.synapse else None,
            "source": system.synapse.source if system.synapse else None,
        },
        "release": _release_fields(diagnosis.release) if diagnosis.release else None,
        "torch": {"version": system.torch, "error": system.torch_error},
        "lightning": dataclasses.asdict(system.lightning),
        "bridge": dataclasses.asdict(system.bridge),
        "problems": [dataclasses.asdict(problem) for problem in diagnosis.problems],
    }


def _release_fields(release: Release) -> dict[str, Any]:
    # `dataclasses.asdict` fails to copy the read-only mapping `sources`.
    fields = {field.name: getattr(release, field.name) for field in dataclasses.fields(release)}
    date = release.date.isoformat() if release.date else None
    return {**fields, "date": date, "sources": dict(release.sources)}
