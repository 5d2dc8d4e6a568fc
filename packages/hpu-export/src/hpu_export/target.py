"""Hugging Face models as targets: names and shapes, configuration, tokenizer."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from hpu_export.names import TargetNames

__all__ = ["Target", "load_target"]

_CONFIG: Final = "config.json"
_GENERATION: Final = "generation_config.json"
# Copied as they are. Code (*.py) is not.
_COPIED: Final = (
    _GENERATION,
    "added_tokens.json",
    "chat_template*",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "*.model",
    "*.tiktoken",
    "tokenizer*",
    "vocab.*",
)


@dataclass(frozen=True)
class Target:
    """A Hugging Face model without its weights.

    Attributes:
        folder: Local folder with its files.
        model: The model on the meta device.
        names: What its state dict has.
    """

    folder: Path
    model: Any
    names: TargetNames

    def write_files(self, folder: Path, dtype: torch.dtype) -> None:
        """Write the configuration for a dtype, and copy generation configuration and tokenizer."""
        config = json.loads((self.folder / _CONFIG).read_text(encoding="utf-8"))
        # transformers 5 writes `dtype`; all releases read the older name.
        key = "dtype" if "dtype" in config else "torch_dtype"
        config[key] = str(dtype).removeprefix("torch.")
        config.setdefault("architectures", [type(self.model).__name__])
        (folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        self.copy_files(folder)
        if not (folder / _GENERATION).exists() and getattr(self.model, "generation_config", None) is not None:
            self.model.generation_config.save_pretrained(folder)

    def copy_files(self, folder: Path) -> None:
        """Copy generation configuration and tokenizer."""
        for pattern in _COPIED:
            for file in self.folder.glob(pattern):
                if file.is_file():
                    shutil.copyfile(file, folder / file.name)


def load_target(name: str, *, weights: bool = False) -> Target:
    """Return a Hugging Face model without its weights.

    Args:
        name: A folder, or a name on the Hugging Face hub, whose files are taken from the local cache or downloaded.
        weights: Whether to download the weights as well.

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
    folder = _local_folder(name, weights=weights)
    if not (folder / _CONFIG).is_file():
        raise ValueError(f"`model` must be a folder with {_CONFIG!r}, or a name on the hub, got {name!r}")
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
    groups: dict[int, list[str]] = {}
    for parameter_name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(parameter_name)
    names = TargetNames(
        f"{model_class.__name__} of {name!r}",
        {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()},
        [group for group in groups.values() if len(group) > 1],
        sorted(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or []),
    )
    return Target(folder, model, names)


def _model_class(transformers: Any, config: Any) -> Any:
    for architecture in config.architectures or []:
        if hasattr(transformers, architecture):
            return getattr(transformers, architecture)
    for mapping in (transformers.MODEL_FOR_CAUSAL_LM_MAPPING, transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING):
        if type(config) in mapping:
            return mapping[type(config)]
    raise ValueError(f"its {_CONFIG!r} must name the class of the model in 'architectures'")


def _local_folder(name: str, *, weights: bool) -> Path:
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = [_CONFIG, *_COPIED, *(["*.safetensors", "*.safetensors.index.json"] if weights else [])]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise ValueError(
            f"`model` must be a folder, or a name in the local cache or on the Hugging Face hub, got {name!r}"
        ) from error
