"""Models: plain `nn.Module`s that know nothing of files, ranks or stages."""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eopipe.errors import UsageError

if TYPE_CHECKING:
    from torch import nn

BUILT_IN = {"unet": "eopipe.models.unet:UNet"}


@dataclass(frozen=True)
class Architecture:
    """What is needed to build a model again: its name and its sizes."""

    name: str
    bands: int
    classes: int
    width: int
    depth: int

    def build(self) -> "nn.Module":
        """Make the module, untrained: images (N, bands, H, W) to logits (N, classes, H, W).

        The name is a built-in one or `module:Class`, called with bands, classes, width and depth.
        """
        module, _, attribute = BUILT_IN.get(self.name, self.name).partition(":")
        if not attribute:
            raise UsageError(f"there is no model {self.name}; use {', '.join(BUILT_IN)} or module:Class")
        try:
            made: nn.Module = getattr(importlib.import_module(module), attribute)(
                bands=self.bands, classes=self.classes, width=self.width, depth=self.depth
            )
        except (ImportError, AttributeError) as error:
            raise UsageError(f"model {self.name} cannot be imported: {error}") from error
        return made

    @property
    def reach(self) -> int:
        """Pixels around an output pixel that can change it; a generous guess for a model of one's own."""
        from eopipe.models.unet import reach

        return reach(self.depth) if self.name in BUILT_IN else 64

    @property
    def factor(self) -> int:
        """Edges of the input must be multiples of this."""
        return int(2**self.depth)
