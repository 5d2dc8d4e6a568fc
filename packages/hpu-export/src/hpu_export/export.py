"""Export of a checkpoint: what it has, under which names, into which files."""

import contextlib
import logging
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from tqdm import tqdm

from hpu_core.checkpoints import folders
from hpu_export import _peft
from hpu_export._lazy_tensor import Checkpoint, LazyTensor
from hpu_export._safetensors import INDEX
from hpu_export.model_card import CARD, is_card, write_card
from hpu_export.names import drop_ignored, drop_tied, strip, unwrap
from hpu_export.options import DTYPES, ExportOptions
from hpu_export.sources import open_checkpoint
from hpu_export.target import CONFIG, Target, is_copied, load_target
from hpu_export.writer import parse_size, plan_files, write_file, write_index

__all__ = ["check_target", "export_checkpoint"]

_FILE: Final = ".safetensors"
_FILES: Final = frozenset({CARD, CONFIG, _peft.CONFIG, INDEX})
_WEIGHTS: Final = re.compile(r"(model|adapter_model)(-[0-9]{5,}-of-[0-9]{5,})?\.safetensors")


_log = logging.getLogger(__name__)


def export_checkpoint(source: str | os.PathLike[str], to: str | os.PathLike[str], **options: Any) -> Path:
    """Export a checkpoint as safetensors.

    Args:
        source: File, folder or URL that fsspec knows: a full checkpoint of Lightning 2.0 to 2.6 or of Fabric, a state
            dict, a folder of FSDP, ModelParallel or DeepSpeed, an adapter of PEFT, or safetensors.
        to: A new file `*.safetensors`, or a new folder. It appears when it is complete.
        **options: Fields of `ExportOptions`.

    Returns:
        The path of the export.

    Raises:
        FileExistsError: `to` exists.
        FileNotFoundError: `source` does not.
        ModuleNotFoundError: An option needs a package that is not installed.
        OSError: Writing failed; nothing is at `to`, or what was there before.
        pickle.UnpicklingError: `weights_only` refuses the checkpoint's content.
        StateDictMismatchError: The weights do not fit the target.
        ValueError: An option, the checkpoint or the target model is not valid.
    """
    settings = ExportOptions(**options)
    location = os.fspath(source)
    target_path = Path(to)
    check_target(target_path, location, settings)
    target: Target | None = None
    if settings.model is not None:
        target = load_target(os.fspath(settings.model))
    with open_checkpoint(location, settings) as checkpoint:
        plan = _make_plan(checkpoint, settings, target, location)
        with _replacing(target_path) as partial:
            _write(plan, partial, target_path, posixpath.basename(location.rstrip("/")), settings)
    return target_path


def check_target(to: Path, source: str, settings: ExportOptions) -> None:
    """Raise an error if an export cannot be written to a path.

    Raises:
        FileExistsError: There is something, and it may not be replaced.
        ValueError: It is or contains what is read, or an adapter is to be one file.
    """
    if settings.adapter and to.suffix == _FILE:
        raise ValueError(f"`to` must be a folder with `adapter=True`, got {str(to)!r}")
    if not os.path.lexists(to):
        return
    if not settings.overwrite:
        raise FileExistsError(
            f"`to` must not exist, got {str(to)!r}: choose another path, or replace it with `overwrite` (`--overwrite`)"
        )
    if to.resolve() in {Path(source).resolve(), *Path(source).resolve().parents}:
        raise ValueError(f"`to` must not be or contain the source, got {str(to)!r}")
    own = to.resolve()
    for option, value in (("model", settings.model), ("adapter_config", settings.adapter_config)):
        kept = Path(value).resolve() if isinstance(value, (str, os.PathLike)) else None
        # A file in the folder is one of the model's weights.
        if kept is not None and (own in {kept, *kept.parents} or (own.is_file() and own.parent == kept)):
            raise ValueError(f"`to` must not be, contain or be a file of the folder of `{option}`, got {str(to)!r}")
    if to.is_symlink() or to.is_dir() == (to.suffix == _FILE) or not (to.is_file() or _is_export(to)):
        raise FileExistsError(
            f"`overwrite` replaces a file *{_FILE} or a folder that hpu-export has written, with its README.md and "
            f"nothing else, got {str(to)!r}: choose another path"
        )


def _is_export(folder: Path) -> bool:
    """Return whether a folder is empty, or has this program's model card and only files as an export has them."""
    names = {entry.name for entry in folder.iterdir() if entry.is_file() and not entry.is_symlink()}
    if len(names) != sum(1 for _ in folder.iterdir()):
        return False
    own = (name in _FILES or _WEIGHTS.fullmatch(name) or is_copied(name) for name in names)
    return not names or (is_card(folder) and all(own))


@dataclass(frozen=True)
class _Plan:
    """What to write.

    Attributes:
        weights: Tensors by name, each once, in the dtype of the output.
        tied: Names that are left out, with those that they stand for.
        run_info: For the model card.
        target: The Hugging Face model; None for the module's own names.
        adapter: The adapter that is exported alone.
    """

    weights: dict[str, LazyTensor]
    tied: dict[str, str]
    run_info: Mapping[str, Any]
    target: Target | None
    adapter: _peft.Adapter | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Most frequent dtype of the floating-point elements."""
        sizes: dict[torch.dtype, int] = {torch.float32: 0}
        for weight in self.weights.values():
            if weight.dtype.is_floating_point:
                sizes[weight.dtype] = sizes.get(weight.dtype, 0) + weight.nbytes // weight.itemsize
        return max(sizes, key=sizes.__getitem__)


def _make_plan(checkpoint: Checkpoint, settings: ExportOptions, target: Target | None, source: str) -> _Plan:
    weights = drop_ignored(unwrap(checkpoint.weights), settings.ignore)
    adapter: _peft.Adapter | None = None
    tied: dict[str, str] = {}
    if target is None:
        weights, tied = drop_tied(strip(weights, settings.prefix))
    elif settings.adapter:
        own = Path(source, _peft.CONFIG)
        config = settings.adapter_config or (own if own.is_file() else None)
        adapter = _peft.Adapter(weights, target, config)
        weights = adapter.keep()
    else:
        if _peft.has_adapter(weights):
            raise ValueError(
                "`adapter` must be True for a checkpoint with an adapter of PEFT, got False: it is exported alone, and "
                "PEFT's `merge_and_unload` merges it into its base"
            )
        weights = target.fit(weights, settings.prefix)
    if not weights:
        raise ValueError(f"the checkpoint must have weights, got none in {source!r}")
    dtype = DTYPES[settings.dtype] if settings.dtype else None
    weights = {name: weight.cast(dtype) for name, weight in weights.items()}
    return _Plan(weights, tied, checkpoint.run_info, target, adapter)


def _write(plan: _Plan, partial: Path, to: Path, source: str, settings: ExportOptions) -> None:
    """Write all files of an export."""
    total = sum(weight.nbytes for weight in plan.weights.values())
    # Hugging Face's readers ask for the format. Names of tied weights are where `safetensors.torch.load_model` looks.
    metadata = {"format": "pt", **plan.tied}
    # Without a terminal the log has a line per file instead.
    with tqdm(total=total, unit="B", unit_scale=True, desc=to.name, disable=None) as bar:
        if to.suffix == _FILE:
            write_file(partial, plan.weights, metadata, bar.update)
            _log.info("wrote %s, %s bytes", to, f"{total:,}")
            return
        partial.mkdir()
        stem = "adapter_model" if plan.adapter else "model"
        limit = total if plan.adapter else parse_size(settings.max_shard_size)
        files = plan_files(plan.weights, limit, stem)
        for file, names in files.items():
            write_file(partial / file, {name: plan.weights[name] for name in names}, metadata, bar.update)
            size = sum(plan.weights[name].nbytes for name in names)
            _log.info("wrote %s, %s tensors, %s bytes", to / file, f"{len(names):,}", f"{size:,}")
    write_index(partial, files, total)
    if plan.adapter:
        plan.adapter.config.save_pretrained(partial)
    elif plan.target:
        plan.target.write_files(partial, plan.dtype)
    library = "peft" if plan.adapter else "transformers" if plan.target else None
    write_card(partial, source, plan.weights, plan.run_info, library)


@contextlib.contextmanager
def _replacing(to: Path) -> Iterator[Path]:
    """Yield a path that becomes `to` when the block ends, and is removed if it fails.

    Raises:
        OSError: Writing failed.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    partial = folders.stage(to.parent, to.name)
    # Of an export that was killed.
    folders.remove(partial)
    try:
        yield partial
        folders.flush_tree(partial)
        folders.replace(partial, to)
    except BaseException as error:
        folders.remove(partial)
        if isinstance(error, OSError) and error.errno:
            reason = os.strerror(error.errno)
            raise OSError(
                error.errno, f"cannot write the export, nothing has changed there: {reason}", str(to)
            ) from error
        raise
