"""Names that transformers saves a model's weights by, where they are not the module's own.

transformers 5 renames weights of some models when it loads them, and joins those of experts. Other programs, such as
vLLM, read the names of its files. Neither the function nor the mapping is documented; tests/test_transformers.py has
what this package needs of them.
"""

from typing import Any

import torch


def to_saved(model: Any, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights of a model as transformers saves them.

    Args:
        model: The model, on any device.
        weights: Some or all of its weights, by the module's names.
    """
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:
        # transformers 4 saves the module's names.
        return weights
    saved: dict[str, torch.Tensor] = revert_weight_conversion(model, weights)
    return saved
