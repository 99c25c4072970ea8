"""Models as plain `nn.Module`s, independent of files, ranks and stages; what a trained one is and how it is stored."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

# Receptive-field radius in pixels of a custom model that has no attribute `reach`.
DEFAULT_RADIUS = 64


@dataclass(frozen=True)
class Architecture:
    """What is needed to build a model: its name, its sizes and the names of its bands.

    `arguments` are further parameters of the model in the form `size=tiny`, their values in JSON.
    """

    name: str
    bands: int
    classes: int
    width: int
    depth: int
    names: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    def build(self) -> "nn.Module":
        """Build the module with initial weights: images (N, bands, H, W) to logits (N, classes, H, W).

        The name is a built-in one or `module:Class`. The class is called with the arguments and with those of bands,
        classes, width, depth and names that its signature has, under these or other common names. Raises UsageError
        where it cannot be built.
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
        """Pixels around an output pixel that it depends on: the model's `reach`, else a generous default."""
        return self._sizes[0]

    @property
    def factor(self) -> int:
        """Height and width of the input must be multiples of this: the model's `factor`, else 2**depth."""
        return self._sizes[1]

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        import torch

        # Building a model to inspect it must not change the random numbers that are drawn afterwards.
        with torch.random.fork_rng(devices=[]):
            module = self.build()
        return int(getattr(module, "reach", DEFAULT_RADIUS)), int(getattr(module, "factor", 2**self.depth))
