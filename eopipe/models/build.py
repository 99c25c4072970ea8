"""Build models, built-in or custom, from the sizes of the data and the arguments of the user."""

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

BUILT_IN = {
    "unet": "eopipe.models.unet:UNet",
    "convnext": "eopipe.models.convnext:ConvNeXt",
    "temporal": "eopipe.models.temporal:TemporalAttention",
}
# Names of the same parameter in other libraries: segmentation-models-pytorch and TorchGeo, timm, transformers.
ALIASES = {
    "bands": ("bands", "in_channels", "in_chans", "num_channels"),
    "classes": ("classes", "num_classes", "num_labels", "out_channels"),
}


def build_module(name: str, offered: Mapping[str, Any], arguments: tuple[str, ...]) -> nn.Module:
    """Call a built-in model or `module:Class` with the arguments and those of the offered values that it accepts.

    The first convolution of a custom model is adapted to the number of bands. Raises UsageError for a model that does
    not exist or does not accept an argument.
    """
    factory = _import_factory(name)
    try:
        module = _instantiate(factory, offered, arguments)
    except (TypeError, ValueError, OSError) as error:
        raise UsageError(f"model {name} cannot be built: {error_summary(error)}; see train.arguments") from error
    if not isinstance(module, nn.Module):
        raise UsageError(f"model {name} is not a torch.nn.Module but {type(module).__name__}")
    if name in BUILT_IN:
        return module
    change_input_bands(module, offered["bands"])
    return WrappedModel(module)


def _instantiate(factory: Any, offered: Mapping[str, Any], arguments: tuple[str, ...]) -> Any:
    """Call it; a class of transformers is built from a config, which accepts the number of classes undocumented."""
    config = getattr(factory, "config_class", None)
    if config is None:
        return factory(**keyword_arguments(factory, offered, arguments))
    return factory(config(**{"num_labels": offered["classes"]} | keyword_arguments(config, offered, arguments)))


def error_summary(error: Exception) -> str:
    """The first line of an error's message, or its class name where that is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _import_factory(name: str) -> Any:
    path, _, attribute = BUILT_IN.get(name, name).partition(":")
    if not attribute:
        raise UsageError(f"there is no model {name}; use {', '.join(BUILT_IN)} or module:Class")
    try:
        return attrgetter(attribute)(importlib.import_module(path))
    except (ImportError, AttributeError) as error:
        raise UsageError(f"model {name} cannot be imported: {error}") from error


def keyword_arguments(factory: Any, offered: Mapping[str, Any], arguments: tuple[str, ...]) -> dict[str, Any]:
    """What to call a model with: the arguments, and those of the offered values that its signature has.

    An argument overrides an offered value. Raises UsageError for arguments that are not of the form `name=value` or
    that the signature does not have.
    """
    parameters = inspect.signature(factory).parameters
    given_by_user = read_arguments(arguments)
    unknown = [name for name in given_by_user if name not in parameters]
    if unknown and not any(value.kind is inspect.Parameter.VAR_KEYWORD for value in parameters.values()):
        raise UsageError(f"{factory.__name__} does not take {', '.join(unknown)}; it takes {', '.join(parameters)}")
    from_data: dict[str, Any] = {}
    for name, value in offered.items():
        accepted = [alias for alias in ALIASES.get(name, (name,)) if alias in parameters]
        from_data |= dict.fromkeys(accepted[:1], value)
    return from_data | given_by_user


def read_arguments(arguments: tuple[str, ...]) -> dict[str, Any]:
    """Arguments as `size=tiny` or `layers=[2,2]` by name; a value that is not JSON is text."""
    malformed = [text for text in arguments if not text.partition("=")[0].isidentifier() or "=" not in text]
    if malformed:
        raise UsageError(f"train.arguments {', '.join(malformed)} must be of the form name=value")
    return {name: _parse_value(text) for name, _, text in (argument.partition("=") for argument in arguments)}


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


class WrappedModel(nn.Module):
    """A custom model, whose output becomes logits (N, classes, H, W) of the size of its input.

    Of dictionaries and outputs of transformers the entry `logits` or `out` is used. Smaller maps are upsampled
    bilinearly; logits (N, classes) of whole chips become (N, classes, 1, 1).
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


def _logits(outputs: Any) -> Tensor:
    if isinstance(outputs, Mapping):
        outputs = next((outputs[name] for name in ("logits", "out") if name in outputs), None)
    if not isinstance(outputs, Tensor) or outputs.ndim not in (2, 4):
        raise UsageError(
            "the model must return a tensor (N, classes, H, W), or (N, classes) for whole chips, or a mapping that has "
            "it as `logits` or `out`"
        )
    return outputs


def change_input_bands(module: nn.Module, bands: int) -> None:
    """Replace the first convolution of a module by one for this number of bands, in place, if it has another number.

    Its weights are repeated over the bands and scaled by old / new number, so that bands with equal values give the
    same output as before.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Conv2d):
            if layer.in_channels != bands and layer.groups == 1:
                parent, _, attribute = name.rpartition(".")
                setattr(module.get_submodule(parent), attribute, _with_input_bands(layer, bands))
            return


def _with_input_bands(old: nn.Conv2d, bands: int) -> nn.Conv2d:
    sizes: dict[str, Any] = {k: getattr(old, k) for k in ("kernel_size", "stride", "padding", "dilation")}
    new = nn.Conv2d(bands, old.out_channels, bias=old.bias is not None, padding_mode=old.padding_mode, **sizes)
    old_bands = old.in_channels
    with torch.no_grad():
        new.weight.copy_(old.weight[:, [band % old_bands for band in range(bands)]])
        # Old bands are repeated different numbers of times: the weight of each is divided among its copies.
        copies = torch.tensor([len(range(band % old_bands, bands, old_bands)) for band in range(bands)])
        if bands > old_bands:
            new.weight.div_(copies[None, :, None, None])
        else:
            new.weight.mul_(old_bands / bands)
        if old.bias is not None and new.bias is not None:
            new.bias.copy_(old.bias)
    return new


def unwrapped_name(name: str) -> str:
    """The name of a parameter or layer within a custom model, which `WrappedModel` holds as `model`."""
    return name.removeprefix("model.")


def freeze(module: nn.Module, prefixes: tuple[str, ...]) -> nn.Module:
    """Freeze the parameters whose names start with one of these prefixes; return the module.

    Names are those within a custom model. Raises UsageError for a prefix that matches no name, and where no parameter
    remains to be trained.
    """
    named = {unwrapped_name(name): value for name, value in module.named_parameters()}
    for prefix in prefixes:
        frozen = [value for name, value in named.items() if name.startswith(prefix)]
        if not frozen:
            starts = sorted({name.partition(".")[0] for name in named})
            raise UsageError(
                f"train.freeze is {prefix}, but no parameter has that prefix; names start with {', '.join(starts)}"
            )
        for value in frozen:
            value.requires_grad_(False)
    if not any(value.requires_grad for value in named.values()):
        raise UsageError("train.freeze leaves no parameter to train; freeze fewer parts of the model")
    return module
