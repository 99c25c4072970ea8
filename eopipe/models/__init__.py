"""Models: plain `nn.Module`s that know nothing of files, ranks or stages."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

BUILT_IN = {
    "unet": "eopipe.models.unet:UNet",
    "convnext": "eopipe.models.convnext:ConvNeXt",
    "temporal": "eopipe.models.temporal:TemporalAttention",
}
# Pixels around an output pixel that a model of one's own is taken to see, if it does not tell.
DEFAULT_RADIUS = 64


@dataclass(frozen=True)
class Architecture:
    """What is needed to build a model again: its name, its sizes and the names of its bands.

    `arguments` are words as `size=tiny`: further parameters of the model, their values in JSON.
    """

    name: str
    bands: int
    classes: int
    width: int
    depth: int
    names: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    def build(self) -> "nn.Module":
        """Make the module, untrained: images (N, bands, H, W) to logits (N, classes, H, W).

        The name is a built-in one or `module:Class`, called with those of bands, classes, width, depth and names
        that it takes, under these or other usual names, and with the arguments. Raises UsageError where it cannot
        be made.
        """
        from eopipe.models.build import build_module

        offered = {
            "bands": self.bands,
            "classes": self.classes,
            "width": self.width,
            "depth": self.depth,
            "names": self.names,
        }
        return build_module(self.name, offered, self.arguments)

    @property
    def receptive_field_radius(self) -> int:
        """Pixels around an output pixel that can change it; a generous guess where the model has no `reach`."""
        return self._sizes[0]

    @property
    def factor(self) -> int:
        """Edges of the input must be multiples of this: the model's `factor`, else 2**depth."""
        return self._sizes[1]

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        import torch

        # Looking at a model must not change the random numbers that come after.
        with torch.random.fork_rng(devices=[]):
            module = self.build()
        return int(getattr(module, "reach", DEFAULT_RADIUS)), int(getattr(module, "factor", 2**self.depth))
