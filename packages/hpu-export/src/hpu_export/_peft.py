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
            ValueError: PEFT would load the weights otherwise than they were trained.
        """
        if getattr(self.config, "ensure_weight_tying", False) and self._target.names.tied:
            raise ValueError(
                "the adapter must not have `ensure_weight_tying`, got True for a model with tied weights: PEFT does "
                "not tie them when it loads its own file; set `tie_word_embeddings` to false, or leave it out"
            )
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
            ValueError: The adapter is not LoRA.
        """
        if self.config.peft_type != "LORA":
            raise ValueError(
                f"the adapter must be LoRA to be merged, got {self.config.peft_type}: export it with `adapter='keep'`, "
                "and merge it with PEFT's merge_and_unload"
            )
        kept = self.keep()
        base = match(self._base(kept), self._target.names, "")
        tied = {name for group in self._target.names.tied for name in group}
        by_full_name = {self._saved[name]: weight for name, weight in kept.items()}
        for name, module in self._model.named_modules():
            if not hasattr(module, "get_delta_weight"):
                continue
            own = name.removeprefix(_WRAPPED)
            if f"{own}.weight" in tied:
                # The other one of the two is trained without the adapter.
                raise ValueError(
                    f"an adapter of '{own}.weight' must be kept apart, because the target ties that weight"
                )
            parts = {n.removeprefix(f"{name}."): w for n, w in by_full_name.items() if n.startswith(f"{name}.")}
            merged = {part: base[f"{own}.{part}"] for part in _FILE_PARTS if f"{own}.{part}" in base}
            layer = _MergedLayer(module, self._name, parts | {f"base_layer.{n}": w for n, w in merged.items()})
            for part, weight in merged.items():
                read = functools.partial(layer.read, part)
                base[f"{own}.{part}"] = dataclasses.replace(weight, blocks=read)
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
        # A folder of PEFT has its own names, and of the model at most embeddings and biases.
        if not any(full in self._weights for full in self._saved.values() if _ADAPTER.search(full)):
            own = _safetensors.open_files(self._target.folder).weights
            base = match(own, self._target.names, None) | base
        for name, weight in kept.items():
            full = self._saved[name]
            # Modules that are saved whole, and parameters of the model that are trained beside the adapter: its biases.
            if replaced in full or not _ADAPTER.search(full):
                base[full.removeprefix(_WRAPPED).replace(replaced, ".").replace(".base_layer.", ".")] = weight
        return base


class _MergedLayer:
    """Layer with an adapter, whose parameters PEFT merges when they are read.

    Args:
        module: PEFT's layer, on the meta device.
        adapter: Name of the adapter.
        parts: Parameters of the adapter and of the layer below, by their names in the module.
    """

    def __init__(self, module: Any, adapter: str, parts: Mapping[str, LazyTensor]) -> None:
        self._module = module
        self._adapter = adapter
        self._parts = parts

    def read(self, name: str) -> list[torch.Tensor]:
        """Return a parameter of the layer below with the adapter's part."""
        # A copy, because PEFT adds in place, to what may be a file that is mapped.
        state = {part: tensor.read().clone() for part, tensor in self._parts.items()}
        self._module.load_state_dict(state, strict=False, assign=True)
        with torch.no_grad():
            self._module.merge(adapter_names=[self._adapter])
        merged: torch.Tensor = self._module.get_base_layer().get_parameter(name).detach()
        # The next layer's are read when it is written.
        self._module.merged_adapters.clear()
        self._module.load_state_dict({n: tensor.to("meta") for n, tensor in state.items()}, strict=False, assign=True)
        return [merged]
