"""Adapters of PEFT in a checkpoint: kept apart, or merged into the weights. PEFT names and merges them itself."""

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from hpu_export import _safetensors
from hpu_export._lazy_tensor import LazyTensor
from hpu_export.names import StateDictMismatchError, match
from hpu_export.target import Target

CONFIG: Final = "adapter_config.json"

# Where PEFT keeps the model that it wraps.
_WRAPPED: Final = "base_model.model."
# The name of the adapter follows the name of the part.
_ADAPTER: Final = re.compile(r"\.(?:lora_\w+|modules_to_save)\.(\w+)")
_FILE_PARTS: Final = frozenset({"weight", "bias"})


def has_adapter(names: Iterable[str]) -> bool:
    """Return whether weights are those of a model that PEFT has wrapped."""
    return any(_WRAPPED in name for name in names)


class Adapter:
    """An adapter, and the weights of a checkpoint that it belongs to.

    Args:
        weights: Weights of the checkpoint, by unwrapped names.
        target: The model that PEFT has wrapped.
        config: A `peft.PeftConfig`, or the path of its file or folder.

    Raises:
        ModuleNotFoundError: PEFT is not installed.
        ValueError: The configuration is missing, or its adapter cannot be merged.
    """

    def __init__(self, weights: Mapping[str, LazyTensor], target: Target, config: Any) -> None:
        try:
            import peft
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError('an adapter needs PEFT: pip install "hpu-export[peft]"', name="peft") from error
        if config is None:
            raise ValueError(
                f"`adapter_config` must be the folder or file of the adapter's {CONFIG!r}, which a checkpoint does not "
                "have, got None"
            )
        if isinstance(config, (str, Path)):
            path = Path(config)
            config = peft.PeftConfig.from_pretrained(str(path if path.is_dir() else path.parent))
        self.config: Any = config
        self._target = target
        self._weights = {_WRAPPED + n.partition(_WRAPPED)[2]: weight for n, weight in weights.items() if _WRAPPED in n}
        found = {match[1] for name in self._weights if (match := _ADAPTER.search(name))} - _FILE_PARTS
        if len(found) > 1:
            raise ValueError(f"the checkpoint must have one adapter, got {', '.join(sorted(found))}: use `ignore`")
        self._name = found.pop() if found else "default"
        self._model: Any = peft.get_peft_model(target.model, config, adapter_name=self._name, low_cpu_mem_usage=True)
        # Of the meta device: PEFT selects and renames the adapter's.
        state = self._model.state_dict(keep_vars=True)
        names = {id(tensor): name for name, tensor in state.items()}
        saved = peft.get_peft_model_state_dict(
            self._model, state_dict=state, adapter_name=self._name, save_embedding_layers=False
        )
        # Names in a checkpoint by names in PEFT's own file.
        self._saved: dict[str, str] = {name: names[id(tensor)] for name, tensor in saved.items()}
        self._shapes = {name: tuple(tensor.shape) for name, tensor in saved.items()}

    def keep(self) -> dict[str, LazyTensor]:
        """Return the adapter's weights by the names of PEFT's own file.

        Raises:
            StateDictMismatchError: The checkpoint has others.
        """
        found = {n: self._weights.get(full) or self._weights.get(n) for n, full in self._saved.items()}
        weights = {name: weight for name, weight in found.items() if weight is not None}
        wrong = {n: (w.shape, self._shapes[n]) for n, w in weights.items() if w.shape != self._shapes[n]}
        known = {name.removeprefix(_WRAPPED) for name in {*self._saved, *self._saved.values()}}
        others = [n for n in self._weights if _ADAPTER.search(n) and n.removeprefix(_WRAPPED) not in known]
        missing = sorted(found.keys() - weights.keys())
        if missing or wrong or others:
            raise StateDictMismatchError(f"the adapter of {CONFIG!r}", missing, others, wrong)
        return weights

    def merge(self) -> dict[str, LazyTensor]:
        """Return the model's weights with the adapter's added.

        Raises:
            StateDictMismatchError: The checkpoint has other weights.
            ValueError: The adapter is not LoRA, or is DoRA.
        """
        if self.config.peft_type != "LORA" or getattr(self.config, "use_dora", False):
            raise ValueError(
                f"the adapter must be LoRA without DoRA to be merged, got {self.config.peft_type}: export it with "
                "`adapter='keep'`, and merge it with PEFT's merge_and_unload"
            )
        kept = self.keep()
        base = match(self._base(kept), self._target.names, "")
        by_full_name = {self._saved[name]: weight for name, weight in kept.items()}
        for name, module in self._model.named_modules():
            if not hasattr(module, "get_delta_weight"):
                continue
            weight = name.removeprefix(_WRAPPED) + ".weight"
            if weight not in base:
                raise ValueError(f"an adapter of {weight!r} must be kept apart, because the target ties that weight")
            parts = {n.removeprefix(f"{name}."): w for n, w in by_full_name.items() if n.startswith(f"{name}.")}
            merged = functools.partial(_merge, base[weight], parts, module, self._name)
            base[weight] = dataclasses.replace(base[weight], blocks=merged)
        return base

    def _base(self, kept: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
        """Return the weights of the model without the adapter, or those that the adapter replaces whole."""
        replaced = f".modules_to_save.{self._name}."
        adapter = {*self._saved, *self._saved.values()}
        base = {
            name.removeprefix(_WRAPPED).replace(".base_layer.", "."): weight
            for name, weight in self._weights.items()
            if name not in adapter and ".original_module." not in name and replaced not in name
        }
        # A folder of PEFT has its own names, and of the model at most embeddings.
        if not any(full in self._weights for full in self._saved.values()):
            own = _safetensors.open_files(self._target.folder).weights
            base = match(own, self._target.names, None) | base
        for name, weight in kept.items():
            if replaced in self._saved[name]:
                base[self._saved[name].removeprefix(_WRAPPED).replace(replaced, ".")] = weight
        return base


def _merge(weight: LazyTensor, parts: Mapping[str, LazyTensor], module: Any, adapter: str) -> list[torch.Tensor]:
    """Return a weight with the adapter's product added, as PEFT's `merge` does."""
    state = {name: part.read() for name, part in parts.items()}
    module.load_state_dict(state, strict=False, assign=True)
    with torch.no_grad():
        merged = weight.read() + module.get_delta_weight(adapter)
    # The next layer's are read when it is written.
    module.load_state_dict({name: tensor.to("meta") for name, tensor in state.items()}, strict=False, assign=True)
    return [merged]
