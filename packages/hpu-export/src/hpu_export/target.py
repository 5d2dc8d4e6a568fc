"""Hugging Face models as targets: names and shapes, configuration, tokenizer."""

import fnmatch
import functools
import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from hpu_export import _transformers
from hpu_export._lazy_tensor import LazyTensor
from hpu_export.names import TargetNames, count_fitting, match

__all__ = ["CONFIG", "Target", "is_copied", "load_target"]

CONFIG: Final = "config.json"
_GENERATION: Final = "generation_config.json"
# Copied as they are: data only, no code and no pickle.
_COPIED: Final = (
    _GENERATION,
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "*.model",
    "*.tiktoken",
    "tokenizer*.json",
    "vocab.bpe",
    "vocab.json",
    "vocab.txt",
)
# Of the base model's configuration: names of code, and the quantization of weights that are whole here.
_DROPPED: Final = ("auto_map", "quantization_config")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Target:
    """A Hugging Face model without its weights.

    Attributes:
        folder: Local folder with its files.
        model: The model on the meta device.
        names: What its state dict has.
        saved_names: What its files have: each name of the state dict with the names and shapes that it is saved by.
    """

    folder: Path
    model: Any
    names: TargetNames
    saved_names: Mapping[str, Mapping[str, tuple[int, ...]]]

    def fit(self, weights: Mapping[str, LazyTensor], prefix: str | None) -> dict[str, LazyTensor]:
        """Return a checkpoint's weights as files of the model have them.

        Args:
            weights: Weights by unwrapped names, of the module or of its files.
            prefix: What precedes the names; None to find it.

        Raises:
            StateDictMismatchError: Names or shapes differ.
            ValueError: Weights that the model ties differ.
        """
        shapes = {name: shape for saved in self.saved_names.values() for name, shape in saved.items()}
        if shapes.keys() != self.names.shapes.keys():
            # Those of one parameter have one name each.
            tied = [[next(iter(self.saved_names[name])) for name in group] for group in self.names.tied]
            files = TargetNames(self.names.description, shapes, tied, self.names.ignored)
            if count_fitting(weights, files) > count_fitting(weights, self.names):
                return match(weights, files, prefix)
        return self.to_saved(match(weights, self.names, prefix))

    def to_saved(self, weights: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
        """Return weights of the module as its files have them."""

        # The parts of one weight are written one after the other.
        @functools.lru_cache(maxsize=1)
        def convert(name: str) -> dict[str, torch.Tensor]:
            return _transformers.to_saved(self.model, {name: weights[name].read()})

        saved: dict[str, LazyTensor] = {}
        for name, weight in weights.items():
            parts = self.saved_names[name]
            for part, shape in parts.items():
                if len(parts) == 1 and shape == weight.shape:
                    saved[part] = weight
                else:
                    read = functools.partial(lambda name, part: [convert(name)[part]], name, part)
                    saved[part] = LazyTensor(shape, weight.dtype, read)
        return saved

    def write_files(self, folder: Path, dtype: torch.dtype) -> None:
        """Write the configuration for a dtype, and copy generation configuration and tokenizer."""
        config = json.loads((self.folder / CONFIG).read_text(encoding="utf-8"))
        config = {name: value for name, value in config.items() if name not in _DROPPED}
        # transformers 5 writes `dtype`; all releases read the older name.
        key = "dtype" if "dtype" in config else "torch_dtype"
        config[key] = str(dtype).removeprefix("torch.")
        config.setdefault("architectures", [type(self.model).__name__])
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        self.copy_files(folder)
        if not (folder / _GENERATION).exists() and getattr(self.model, "generation_config", None) is not None:
            self.model.generation_config.save_pretrained(folder)

    def copy_files(self, folder: Path) -> None:
        """Copy generation configuration and tokenizer."""
        for pattern in _COPIED:
            for file in self.folder.glob(pattern):
                if file.is_file():
                    shutil.copyfile(file, folder / file.name)


def is_copied(name: str) -> bool:
    """Return whether a file of this name is copied from the model's folder."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in _COPIED)


def load_target(name: str) -> Target:
    """Return a Hugging Face model without its weights.

    Args:
        name: A folder, or a name on the Hugging Face hub, whose files are taken from the local cache or downloaded.

    Raises:
        ModuleNotFoundError: transformers is not installed.
        ValueError: There is no such model, or transformers does not know it.
    """
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'a Hugging Face target needs transformers: pip install "hpu-export[hf]"', name="transformers"
        ) from error
    folder = _local_folder(name)
    if not (folder / CONFIG).is_file():
        raise ValueError(f"`model` must be a folder with {CONFIG!r}, or a name on the hub, got {name!r}")
    try:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        model_class = _model_class(transformers, config)
        with torch.device("meta"):
            model = model_class(config)
    except (KeyError, OSError, TypeError, ValueError, AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"`model` must be one that transformers {transformers.__version__} knows, got {name!r}: {reason}"
        ) from error
    state = model.state_dict()
    groups: dict[int, list[str]] = {}
    for parameter_name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(parameter_name)
    names = TargetNames(
        f"{model_class.__name__} of {name!r}",
        {key: tuple(tensor.shape) for key, tensor in state.items()},
        [group for group in groups.values() if len(group) > 1],
        sorted(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or []),
    )
    return Target(folder, model, names, _saved_names(model, state))


def _saved_names(model: Any, state: dict[str, torch.Tensor]) -> dict[str, dict[str, tuple[int, ...]]]:
    parts = {
        name: {saved: tuple(part.shape) for saved, part in _transformers.to_saved(model, {name: tensor}).items()}
        for name, tensor in state.items()
    }
    whole = _transformers.to_saved(model, state)
    if sorted(whole) == sorted(saved for names in parts.values() for saved in names):
        return parts
    _log.warning("the export has the names of %s, because its files join weights", type(model).__name__)
    return {name: {name: tuple(tensor.shape)} for name, tensor in state.items()}


def _model_class(transformers: Any, config: Any) -> Any:
    for architecture in config.architectures or []:
        if hasattr(transformers, architecture):
            return getattr(transformers, architecture)
    for mapping in (transformers.MODEL_FOR_CAUSAL_LM_MAPPING, transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING):
        if type(config) in mapping:
            return mapping[type(config)]
    raise ValueError(f"its {CONFIG!r} must name the class of the model in 'architectures'")


def _local_folder(name: str) -> Path:
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG, *_COPIED]))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise ValueError(
            f"`model` must be a folder, or a name in the local cache or on the Hugging Face hub, got {name!r}"
        ) from error
