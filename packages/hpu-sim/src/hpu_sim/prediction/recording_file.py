"""Files of recordings, from which a plan is made again without the program."""

from __future__ import annotations

import dataclasses
import gzip
import json
from typing import TYPE_CHECKING, Final

from hpu_sim.common.encoding import SCHEMA_VERSION, from_dict
from hpu_sim.prediction.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SCHEMA: Final = "hpu-sim recording"
_NO_RECORDING: Final = "`{}` must be a script, or a recording that `hpu-sim plan --save` of this version wrote ({})"
_MAGIC: Final = b"\x1f\x8b"


def is_recording(path: Path) -> bool:
    """Return whether a file is one of :func:`save`, rather than a script."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def save(recordings: Sequence[Recording], path: Path) -> None:
    """Write recordings to a file."""
    data = {
        "schema": _SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "recordings": list(map(dataclasses.asdict, recordings)),
    }
    path.write_bytes(gzip.compress(json.dumps(data, separators=(",", ":")).encode()))


def load(path: Path) -> list[Recording]:
    """Return the recordings of a file.

    Raises:
        ValueError: If it has none of this version.
    """
    try:
        data = json.loads(gzip.decompress(path.read_bytes()))
        recordings = [from_dict(Recording, each) for each in data["recordings"]] if data["schema"] == _SCHEMA else []
    except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
        raise ValueError(_NO_RECORDING.format(path, error)) from error
    if not recordings:
        raise ValueError(_NO_RECORDING.format(path, "it has none"))
    return recordings
