"""Models as plain `nn.Module`s, independent of files, ranks and stages; what a trained one is and how it is stored."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eopipe.errors import RefusedError
from eopipe.models.model_files import (
    ModelFile,
    hidden_library,
    is_permitted,
    list_files,
    module_of,
    permission_message,
    portable_names,
)
from eopipe.train_options import BANDS, LINEAR, PIXEL_MODELS, TEXTURE

if TYPE_CHECKING:
    from torch import nn

# Receptive-field radius in pixels of a custom model that has no attribute `reach`.
DEFAULT_RADIUS = 64
# The head of a built-in model that has features of a neighbourhood, as the argument `head`: their last layer alone, or
# the pixel's spectrum beside it.
HEADS = LINEAR_HEAD, SPECTRAL_HEAD = ("linear", "spectral")
# Arguments of built-in models with their defaults, and what models of the versions that name none have.
MODELS_WITH_HEAD = ("unet", "convnext")
DEFAULTS = dict.fromkeys(MODELS_WITH_HEAD, f"head={SPECTRAL_HEAD}")
DEFAULTS |= dict.fromkeys(PIXEL_MODELS, f"features={TEXTURE}")
EARLIER_DEFAULTS = dict.fromkeys(MODELS_WITH_HEAD, f"head={LINEAR_HEAD}") | {LINEAR: f"features={BANDS}"}


def with_default(name: str, arguments: tuple[str, ...], defaults: Mapping[str, str]) -> tuple[str, ...]:
    """The arguments of a model, and the one of the defaults that it takes and they do not name."""
    default = defaults.get(name, "")
    option = default.partition("=")[0]
    is_named = any(argument.partition("=")[0] == option for argument in arguments)
    return arguments if is_named or not default else (*arguments, default)


@dataclass(frozen=True)
class Architecture:
    """What is needed to build a model: its name, its sizes and the names of its bands.

    `arguments` are further parameters of the model in the form `size=tiny`, their values in JSON; `files` are the code
    of a custom model and the files that arguments name. `weights_bands` are the bands, in order, for which a custom
    model makes its first layer; that is changed to the bands of `names` then. `refusal` says why the code of a given
    custom model may not run; it is empty for the model that a training names, and where there is permission.
    """

    name: str
    bands: int
    classes: int
    width: int
    depth: int
    names: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    files: tuple[ModelFile, ...] = ()
    weights_bands: tuple[str, ...] = ()
    refusal: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Name the head or the features, so that a model folder says with which it was trained."""
        object.__setattr__(self, "arguments", with_default(self.name, tuple(self.arguments), DEFAULTS))

    @classmethod
    def of(cls, values: Mapping[str, Any], bands: tuple[str, ...], classes: int) -> "Architecture":
        """The model that the values of the stage train describe. Raises UsageError for files that it cannot have."""
        name, arguments = values["architecture"], tuple(values["arguments"])
        files = list_files(values["model_files"], name, arguments)
        name, arguments = portable_names(name, arguments, files)
        sizes = (len(bands), classes, values["width"], values["depth"])
        return cls(name, *sizes, bands, arguments, files, tuple(values["weights_bands"]))

    def build(self) -> "nn.Module":
        """Build the module with initial weights: images (N, bands, H, W) to logits (N, classes, H, W).

        The name is a built-in one, `module:Class` or `file.py:Class`. The class is called with the arguments and with
        bands, classes, width, depth and names as far as its signature has them, under these or other common names.
        Raises UsageError where it cannot be built, IntegrityError where one of its files has changed, RefusedError
        where its code may not run.
        """
        from eopipe.models.build import build_module

        if self.refusal:
            raise RefusedError(self.refusal)

        offered = {
            # Its own first layer fits its weights; a library that changes that layer does so by position.
            "bands": len(self.weights_bands) or self.bands,
            "classes": self.classes,
            "width": self.width,
            "depth": self.depth,
            "names": self.names,
        }
        return build_module(self.name, offered, self.arguments, self.files, (self.names, self.weights_bands))

    def build_without_memory(self) -> "nn.Module":
        """A built-in model whose parameters have shapes and no values."""
        import torch

        with torch.device("meta"):
            return self.build()

    def with_permission(self, name: str | None, *, in_python: bool = False) -> "Architecture":
        """The architecture of a given model: the code of a custom one may run if this is its name.

        `in_python` says how the permission is given, for the error.
        """
        if is_permitted(self.name, (name,)):
            return replace(self, refusal=hidden_library(self.name, self.files))
        return replace(self, refusal=permission_message("this model", self.name, in_python=in_python))

    @property
    def receptive_field_radius(self) -> int:
        """Pixels around an output pixel that it depends on: the model's `reach`, else a generous default."""
        return DEFAULT_RADIUS if self._sizes[0] in (None, math.inf) else int(self._sizes[0])

    @property
    def sees_whole_window(self) -> bool:
        """Whether an output pixel depends on the whole window: the model's `reach` is infinite."""
        return self._sizes[0] == math.inf

    @property
    def factor(self) -> int:
        """Height and width of the input must be multiples of this: the model's `factor`, else 2**depth."""
        return self._sizes[1]

    @property
    def takes_any_window(self) -> bool:
        """Whether it takes images of any multiple of its factor: a model that says its reach does."""
        return self._sizes[0] is not None

    @cached_property
    def _sizes(self) -> tuple[float | None, int]:
        """The `reach` of the model, None where it does not say it, and its `factor`."""
        import torch

        # Building a model to inspect it must not change the random numbers that are drawn afterwards.
        with torch.random.fork_rng(devices=[]):
            module = self.build() if module_of(self.name) else self.build_without_memory()
        return getattr(module, "reach", None), int(getattr(module, "factor", 2**self.depth))
