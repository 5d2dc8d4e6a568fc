"""The model card, README.md: what was exported, from which run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hpu_export.__about__ import __version__
from hpu_export._lazy_tensor import LazyTensor

__all__ = ["CARD", "is_card", "write_card"]

CARD: Final = "README.md"
_SIGNATURE: Final = "Exported by hpu-export "


def write_card(
    folder: Path, source: str, weights: Mapping[str, LazyTensor], run_info: Mapping[str, Any], library: str | None
) -> None:
    """Write the model card of a folder.

    Args:
        folder: The folder.
        source: Name of the checkpoint.
        weights: What the folder has.
        run_info: What the checkpoint says of its run.
        library: The library that loads the folder, for the Hugging Face hub; None for none.
    """
    sizes = sum(weight.nbytes // weight.itemsize for weight in weights.values())
    dtypes = sorted({str(weight.dtype).removeprefix("torch.") for weight in weights.values()})
    rows = {"checkpoint": source, "elements": f"{sizes:,}", "dtype": ", ".join(dtypes), **run_info}
    lines = ["---"]
    if library:
        lines.append(f"library_name: {library}")
    lines += ["tags:", "- hpu-export", "---", "", f"# {Path(source).stem}", ""]
    lines += [f"{_SIGNATURE}{__version__}.", "", "| | |", "|---|---|"]
    lines += [f"| {_cell(name)} | {_cell(value)} |" for name, value in rows.items()]
    (folder / CARD).write_text("\n".join(lines) + "\n", encoding="utf-8")


def is_card(folder: Path) -> bool:
    """Return whether a folder has a model card that this program has written."""
    try:
        return _SIGNATURE in (folder / CARD).read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return False


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")
