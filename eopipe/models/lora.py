"""LoRA adapters of frozen layers (Hu et al. 2021, arXiv:2106.09685), through peft (the extra `lora`).

Only the adapters are trained; the published model has them merged into its weights and does not need peft.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from eopipe.errors import UsageError
from eopipe.models.build import unwrapped_name

BASE, DOWN, UP = ".base_layer.", ".lora_A.default.", ".lora_B.default."


def add_lora_adapters(module: nn.Module, prefixes: tuple[str, ...], rank: int) -> nn.Module:
    """Add LoRA adapters of this rank to the frozen linear layers and convolutions of these prefixes; return the module.

    Rank 0 adds none. Parameters that are not frozen are trained as before. Raises UsageError without peft, and where
    no frozen layer can have an adapter.
    """
    if not rank:
        return module
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise UsageError("train.lora needs peft; install eopipe[lora], or set it to 0") from error
    names = [
        name
        for name, layer in module.named_modules()
        if _is_adaptable(layer) and unwrapped_name(name).startswith(prefixes)
    ]
    if not names:
        raise UsageError(
            "train.lora adds adapters to linear layers and ungrouped convolutions that train.freeze freezes, "
            "and it freezes none"
        )
    trainable = {name for name, value in module.named_parameters() if value.requires_grad}
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=rank, target_modules=names), module)
    for name, value in module.named_parameters():
        value.requires_grad_(name in trainable or ".lora_" in name)
    return module


def _is_adaptable(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.groups == 1)


def merge_lora_adapters(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a model with their adapters merged, under the names of the model without adapters."""
    plain = {name: value for name, value in weights.items() if ".lora_" not in name}
    return {name.replace(BASE, "."): _with_adapter(name, value, weights) for name, value in plain.items()}


def _with_adapter(name: str, value: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    down = weights.get(name.replace(BASE, DOWN))
    if BASE not in name or down is None:
        return value
    up = weights[name.replace(BASE, UP)]
    return value + torch.einsum("or,ri...->oi...", up.flatten(1), down)
