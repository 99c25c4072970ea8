"""Build models, built-in or custom, from the sizes of the data and the arguments of the user; freeze and adapt them.

The first layer of a pretrained model is fitted to other bands than its weights have, by the names of the bands.
"""

import inspect
import math
import re
import traceback
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from eopipe.errors import MODEL_PACKAGE, EopipeError, IntegrityError, ModelCodeError, UsageError, model_code_error
from eopipe.models.import_copy import import_module_of
from eopipe.models.model_files import ModelFile, is_code, resolved_arguments

PACKAGE = Path(__file__).parents[1]

BUILT_IN = {
    "unet": "eopipe.models.networks:UNet",
    "convnext": "eopipe.models.networks:ConvNeXt",
    "temporal": "eopipe.models.networks:TemporalAttention",
    "forest": "eopipe.models.networks:Forest",
    "boosting": "eopipe.models.networks:Boosting",
    "linear": "eopipe.models.networks:Linear",
}
# Names of the same parameter in other libraries: segmentation-models-pytorch and TorchGeo, timm, transformers.
ALIASES = {
    "bands": ("bands", "in_channels", "in_chans", "num_channels"),
    "classes": ("classes", "num_classes", "num_labels", "out_channels"),
}
# Parts of the names that peft gives to layers with adapters.
BASE, DOWN, UP = ".base_layer.", ".lora_A.default.", ".lora_B.default."


class ArgumentsError(UsageError):
    """Arguments that do not fit the signature of a model."""


def build_module(
    name: str,
    offered: Mapping[str, Any],
    arguments: tuple[str, ...],
    files: tuple[ModelFile, ...] = (),
    bands: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
) -> nn.Module:
    """Call a built-in model or `module:Class` with the arguments and with the offered values that it accepts.

    The code of a custom model, and what its arguments name, are those `files`. `bands` are the bands of the images
    and of its weights: with the latter its first convolution is changed. Raises UsageError for a model that does not
    exist, fails or does not accept an argument, IntegrityError for a file that has changed.
    """
    factory = _import_factory(name, files)
    _check_factory(name, factory, files)
    values = resolved_arguments(arguments, files)
    try:
        module = _instantiate(factory, offered, values)
    except ArgumentsError as error:
        raise UsageError(f"model {name} cannot be built: {error}") from error
    except EopipeError:
        raise
    except Exception as error:
        if name in BUILT_IN and not isinstance(error, TypeError | ValueError | OSError):
            raise
        hint = f"; train.arguments has {', '.join(arguments)}" if arguments else ""
        raise _failure(name, "built", error, f"{_from_library(error)}{hint}") from error
    if not isinstance(module, nn.Module):
        raise UsageError(f"model {name} is not a torch.nn.Module but {type(module).__name__}")
    if name in BUILT_IN:
        return module
    if bands[1]:
        change_input_bands(module, *bands)
    return WrappedModel(module)


def _instantiate(factory: Any, offered: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Call it; a class of transformers is built from a config, which accepts the number of classes undocumented."""
    config = getattr(factory, "config_class", None)
    if config is None:
        return factory(**keyword_arguments(factory, offered, arguments))
    return factory(config(**{"num_labels": offered["classes"]} | keyword_arguments(config, offered, arguments)))


def error_summary(error: BaseException) -> str:
    """The first line of an error's message, or its class name where that is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _from_library(error: BaseException) -> str:
    """What an exception says; from a library also with its class and place, unless it is about the call itself."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_call = isinstance(error, TypeError | ValueError | OSError) or Path(last.filename).is_relative_to(PACKAGE)
    if is_call:
        return error_summary(error)
    place = "/".join(Path(last.filename).parts[-2:])
    return f"{type(error).__name__}: {error_summary(error)} ({place} line {last.lineno})"


def _import_factory(name: str, files: tuple[ModelFile, ...]) -> Any:
    path, _, attribute = BUILT_IN.get(name, name).partition(":")
    if not attribute:
        raise UsageError(f"there is no model {name}; use {', '.join(BUILT_IN)}, module:Class or file.py:Class")
    try:
        return attrgetter(attribute)(import_module_of(path, files))
    except IntegrityError:
        raise
    except UsageError as error:
        raise UsageError(f"model {name} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise _failure(name, "imported", error, _import_reason(error, path)) from error


def _check_factory(name: str, factory: Any, files: tuple[ModelFile, ...]) -> None:
    """Raise UsageError, before it is called, for what does not make a model.

    That is a class that is not a torch.nn.Module, and a function of a library: it could be any, such as subprocess:run.
    """
    # A class method, such as Class.from_pretrained, belongs to its class.
    owner = factory if isinstance(factory, type) else getattr(factory, "__self__", None)
    is_own_function = callable(factory) and not isinstance(factory, type) and any(is_code(file) for file in files)
    if not is_own_function and not (isinstance(owner, type) and issubclass(owner, nn.Module)):
        kind = "a class" if isinstance(factory, type) else f"a {type(factory).__name__}"
        raise UsageError(
            f"model {name} is not a torch.nn.Module but {kind}; name a subclass of it, or write a function that calls "
            "it in a file beside the config and name that"
        )


def _failure(name: str, action: str, error: BaseException, reason: str) -> ModelCodeError:
    """The error of a model that cannot be imported or built; `reason` is for one outside of the model's own code."""
    in_model = model_code_error(error)
    frames = in_model.frames if in_model else ()
    return ModelCodeError(f"model {name} cannot be {action}: {in_model or reason}", frames)


def _import_reason(error: BaseException, path: str) -> str:
    """Why a module or a name in it is not there, or fails in a library."""
    top = path.partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and error.name == top:
        return f"No module named {top!r}: neither {top}.py or {top}/ is in {Path.cwd()}, nor is it installed"
    if isinstance(error, ImportError | AttributeError):
        return re.sub(rf"{MODEL_PACKAGE}\w+\.", "", error_summary(error))
    return _from_library(error)


def keyword_arguments(factory: Any, offered: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What to call a model with: the arguments, and the offered values that its signature has.

    An argument overrides an offered value. Raises ArgumentsError for arguments that the signature does not have, and
    where one that it needs is missing.
    """
    parameters = inspect.signature(factory).parameters
    unknown, takes = [name for name in arguments if name not in parameters], f"it takes {', '.join(parameters)}"
    if unknown and not any(value.kind is inspect.Parameter.VAR_KEYWORD for value in parameters.values()):
        raise ArgumentsError(f"{factory.__name__} does not take {', '.join(unknown)}; {takes}")
    from_data: dict[str, Any] = {}
    for name, value in offered.items():
        accepted = [alias for alias in ALIASES.get(name, (name,)) if alias in parameters]
        from_data |= dict.fromkeys(accepted[:1], value)
    values = from_data | dict(arguments)
    missing = [name for name, value in parameters.items() if name not in values and _is_required(value)]
    if missing:
        offers = ", ".join(alias for name in offered for alias in ALIASES.get(name, (name,))[:1])
        raise ArgumentsError(
            f"{factory.__name__} needs {', '.join(missing)}: set it in train.arguments as {missing[0]}=value; {takes}, "
            f"and eopipe gives {offers}"
        )
    return values


def _is_required(parameter: inspect.Parameter) -> bool:
    is_variable = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and not is_variable


class WrappedModel(nn.Module):
    """A custom model, whose output becomes logits (N, classes, H, W) of the size of its input.

    Dictionaries and outputs of transformers have an entry `logits` or `out`, which is used. Smaller maps are upsampled
    bilinearly; logits (N, classes) of whole chips become (N, classes, 1, 1).
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        for name in ("reach", "factor", "window"):
            if isinstance(value := getattr(model, name, None), int) or (name == "reach" and value == math.inf):
                setattr(self, name, value)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W)."""
        logits = self.logits(x_NCHW)
        if logits.ndim == 2:
            return logits[:, :, None, None]
        if logits.shape[2:] == x_NCHW.shape[2:]:
            return logits
        return functional.interpolate(logits, x_NCHW.shape[2:], mode="bilinear", align_corners=False)

    def logits(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, h, w) or (N, classes) as the model gives them."""
        return _logits(self.model(x_NCHW))


def _logits(outputs: Any) -> Tensor:
    """The logits among the outputs of a model. Raises UsageError with the shape and type of anything else."""
    if isinstance(outputs, Mapping):
        keys = ", ".join(map(str, outputs))
        outputs = next((outputs[name] for name in ("logits", "out") if name in outputs), f"a mapping of {keys}")
    if isinstance(outputs, Tensor) and outputs.ndim in (2, 4) and outputs.is_floating_point():
        return outputs
    received, cure = outputs if isinstance(outputs, str) else f"a {type(outputs).__name__}", ""
    if isinstance(outputs, Tensor):
        received = f"{tuple(outputs.shape)} of {str(outputs.dtype).removeprefix('torch.')}"
        cure = "" if outputs.is_floating_point() else "; return them before their argmax, which cannot be trained"
    raise UsageError(
        f"the model returns {received}, where logits of shape (batch, classes, height, width) are expected, or (batch, "
        f"classes) for whole chips, or a mapping that has them as `logits` or `out`{cure}"
    )


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


def first_convolution(module: nn.Module) -> tuple[str, nn.Conv2d] | None:
    """Name and layer of the first convolution of a module."""
    layers = ((name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Conv2d))
    return next(layers, None)


def change_input_bands(module: nn.Module, bands: tuple[str, ...], weights_bands: tuple[str, ...]) -> None:
    """Replace the first convolution, made for `weights_bands`, by one for `bands`, in place.

    The kernel of a band goes to the channels of its name, also to each date of it, as red_MAM and red_JJA. A band that
    the weights do not know gets the mean of all kernels (Wang et al. 2016, arXiv:1608.00859, section 3.2). All are
    scaled by the old over the new number of bands, so that the layer's output keeps its magnitude (Carreira and
    Zisserman 2017, arXiv:1705.07750, section 2.4.1). Raises UsageError for a layer of another number of bands, and for
    bands of the weights that are not among `bands`.
    """
    first = first_convolution(module)
    if first is None or first[1].groups != 1 or first[1].in_channels != len(weights_bands):
        channels = f"that takes {first[1].in_channels} channels" if first else "which is not a convolution"
        raise UsageError(
            f"train.weights_bands lists {len(weights_bands)} bands ({', '.join(weights_bands)}), but the model has a "
            f"first layer {channels}; list the bands of its weights, in their order"
        )
    channels_of_bands = [_channel(band, weights_bands) for band in bands]
    missing = [band for number, band in enumerate(weights_bands) if number not in channels_of_bands]
    if missing:
        raise UsageError(
            f"train.weights_bands has {', '.join(missing)}, which the images do not have ({', '.join(bands)}); add it "
            "to preprocess.bands, or name the bands as preprocess does"
        )
    name, layer = first
    parent, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(parent), attribute, _with_channels(layer, channels_of_bands))


def _channel(band: str, weights_bands: tuple[str, ...]) -> int | None:
    """The channel of the weights for a band, or for a date of it."""
    for name in (band, band.rpartition("_")[0]):
        if name in weights_bands:
            return weights_bands.index(name)
    return None


def _with_channels(old: nn.Conv2d, channels: list[int | None]) -> nn.Conv2d:
    """A convolution whose input channels have these kernels of another one, and the mean of all where None."""
    sizes: dict[str, Any] = {k: getattr(old, k) for k in ("kernel_size", "stride", "padding", "dilation")}
    new = nn.Conv2d(len(channels), old.out_channels, bias=old.bias is not None, padding_mode=old.padding_mode, **sizes)
    with torch.no_grad():
        mean = old.weight.mean(1)
        kernels = [mean if channel is None else old.weight[:, channel] for channel in channels]
        new.weight.copy_(torch.stack(kernels, 1) * (old.in_channels / len(channels)))
        if old.bias is not None and new.bias is not None:
            new.bias.copy_(old.bias)
    return new


def add_lora_adapters(module: nn.Module, prefixes: tuple[str, ...], rank: int) -> nn.Module:
    """Add LoRA adapters of this rank to the frozen linear layers and convolutions of these prefixes; return the module.

    Hu et al. 2021, arXiv:2106.09685, through peft (the extra `lora`). Rank 0 adds none. Parameters that are
    not frozen are trained as before. Raises UsageError without peft, and where no frozen layer can have an adapter.
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
