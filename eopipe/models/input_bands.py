"""The first layer of a pretrained model for other bands than its weights have, by the names of the bands."""

from typing import Any

import torch
from torch import nn

from eopipe.errors import UsageError


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
