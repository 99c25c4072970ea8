"""Make models, built-in or of anybody, from what is offered to them and from words of the user."""

import importlib
import inspect
import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from eopipe.errors import UsageError
from eopipe.models import BUILT_IN

# What other libraries call the same: segmentation-models-pytorch and TorchGeo, timm, transformers.
ALIASES = {
    "bands": ("bands", "in_channels", "in_chans", "num_channels"),
    "classes": ("classes", "num_classes", "num_labels", "out_channels"),
}


def build_module(name: str, offered: Mapping[str, Any], arguments: tuple[str, ...]) -> nn.Module:
    """Call a built-in model or `module:Class` with those of the offered values that it takes, and the arguments.

    A model of one's own that was made for another number of bands gets a first layer for these. Raises UsageError
    for a model that does not exist or does not take an argument.
    """
    kind = _find(name)
    try:
        module = _called(kind, offered, arguments)
    except (TypeError, ValueError, OSError) as error:
        raise UsageError(f"model {name} cannot be made: {error_summary(error)}; see train.arguments") from error
    if not isinstance(module, nn.Module):
        raise UsageError(f"model {name} is no torch.nn.Module but {type(module).__name__}")
    if name in BUILT_IN:
        return module
    change_input_bands(module, offered["bands"])
    return WrappedModel(module)


def _called(kind: Any, offered: Mapping[str, Any], arguments: tuple[str, ...]) -> Any:
    """A class of transformers is made from a config, which takes the number of classes even if it does not say so."""
    config = getattr(kind, "config_class", None)
    if config is None:
        return kind(**parameters(kind, offered, arguments))
    return kind(config(**{"num_labels": offered["classes"]} | parameters(config, offered, arguments)))


def error_summary(error: Exception) -> str:
    """What an error says, in short; its name where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _find(name: str) -> Any:
    path, _, attribute = BUILT_IN.get(name, name).partition(":")
    if not attribute:
        raise UsageError(f"there is no model {name}; use {', '.join(BUILT_IN)} or module:Class")
    try:
        return attrgetter(attribute)(importlib.import_module(path))
    except (ImportError, AttributeError) as error:
        raise UsageError(f"model {name} cannot be imported: {error}") from error


def parameters(kind: Any, offered: Mapping[str, Any], arguments: tuple[str, ...]) -> dict[str, Any]:
    """What to call a model with: the arguments, and what its signature takes of the offered values.

    An argument wins over an offered value. Raises UsageError for words that are no `name=value` or that the
    signature does not take.
    """
    taken = inspect.signature(kind).parameters
    told = read_arguments(arguments)
    unknown = [key for key in told if key not in taken]
    if unknown and not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values()):
        raise UsageError(f"{kind.__name__} does not take {', '.join(unknown)}; it takes {', '.join(taken)}")
    found: dict[str, Any] = {}
    for key, value in offered.items():
        known = [alias for alias in ALIASES.get(key, (key,)) if alias in taken]
        found |= dict.fromkeys(known[:1], value)
    return found | told


def read_arguments(words: tuple[str, ...]) -> dict[str, Any]:
    """Words as `size=tiny` or `layers=[2,2]` by name; a value that is no JSON is text."""
    wrong = [word for word in words if not word.partition("=")[0].isidentifier() or "=" not in word]
    if wrong:
        raise UsageError(f"train.arguments {', '.join(wrong)} must be of the form name=value")
    return {name: _value(text) for name, _, text in (word.partition("=") for word in words)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class WrappedModel(nn.Module):
    """A model of anybody, whose output becomes logits (N, classes, H, W) of the size of its input.

    Dictionaries and outputs of transformers give their `logits` or `out`. Smaller maps are enlarged bilinearly; logits
    (N, classes) of whole chips become (N, classes, 1, 1).
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        for name in ("reach", "factor"):
            if isinstance(getattr(model, name, None), int):
                setattr(self, name, getattr(model, name))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W)."""
        logits = _logits(self.model(x_NCHW))
        if logits.ndim == 2:
            return logits[:, :, None, None]
        if logits.shape[2:] == x_NCHW.shape[2:]:
            return logits
        return functional.interpolate(logits, x_NCHW.shape[2:], mode="bilinear", align_corners=False)


def _logits(made: Any) -> Tensor:
    if isinstance(made, Mapping):
        made = next((made[name] for name in ("logits", "out") if name in made), None)
    if not isinstance(made, Tensor) or made.ndim not in (2, 4):
        raise UsageError(
            "the model must give a tensor (N, classes, H, W), of chips (N, classes), or one as `logits` or `out`"
        )
    return made


def change_input_bands(module: nn.Module, bands: int) -> None:
    """Give a module whose first convolution takes another number of bands one that takes these, in place.

    Its weights are repeated over the bands and scaled by old / new number, so that bands that all tell the same
    give what they gave before.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Conv2d):
            if layer.in_channels != bands and layer.groups == 1:
                owner, _, last = name.rpartition(".")
                setattr(module.get_submodule(owner), last, _widened(layer, bands))
            return


def _widened(old: nn.Conv2d, bands: int) -> nn.Conv2d:
    sizes: dict[str, Any] = {k: getattr(old, k) for k in ("kernel_size", "stride", "padding", "dilation")}
    new = nn.Conv2d(bands, old.out_channels, bias=old.bias is not None, padding_mode=old.padding_mode, **sizes)
    had = old.in_channels
    with torch.no_grad():
        new.weight.copy_(old.weight[:, [band % had for band in range(bands)]])
        # Each old band is repeated a different number of times: what it told is shared among its copies.
        copies = torch.tensor([len(range(band % had, bands, had)) for band in range(bands)])
        if bands > had:
            new.weight.div_(copies[None, :, None, None])
        else:
            new.weight.mul_(had / bands)
        if old.bias is not None and new.bias is not None:
            new.bias.copy_(old.bias)
    return new


def unwrapped_name(name: str) -> str:
    """The name of a part within a model of one's own, which `WrappedModel` holds as `model`."""
    return name.removeprefix("model.")


def freeze(module: nn.Module, prefixes: tuple[str, ...]) -> nn.Module:
    """Keep the parameters whose names start with one of these as they are; gives the module.

    Names are those within a model of one's own. Raises UsageError for a prefix that no name has, and where
    nothing is left to learn.
    """
    named = {unwrapped_name(name): value for name, value in module.named_parameters()}
    for prefix in prefixes:
        found = [value for name, value in named.items() if name.startswith(prefix)]
        if not found:
            tops = sorted({name.partition(".")[0] for name in named})
            raise UsageError(f"train.freeze names {prefix}, which no parameter has; they start with {', '.join(tops)}")
        for value in found:
            value.requires_grad_(False)
    if not any(value.requires_grad for value in named.values()):
        raise UsageError("train.freeze leaves nothing to learn; name fewer parts of the model")
    return module
