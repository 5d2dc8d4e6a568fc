"""Adapters of PEFT in a checkpoint, which are exported as PEFT saves them."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from hpu_export._lazy_tensor import LazyTensor
from hpu_export.names import StateDictMismatchError
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
        ValueError: The configuration is missing, PEFT would load the weights otherwise, or there are several adapters.
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
        if getattr(config, "ensure_weight_tying", False) and target.names.tied:
            raise ValueError(
                "the adapter must not have `ensure_weight_tying`, got True for a model with tied weights: PEFT does "
                "not tie them when it loads its own file; set `tie_word_embeddings` to false, or leave it out"
            )
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
