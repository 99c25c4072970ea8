"""The chips of a run as a dataset of PyTorch, for your own training loop."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from eopipe.arrays import IntArray
from eopipe.chips.audit import check_statistics
from eopipe.chips.chips import Normaliser, pair_stores
from eopipe.chips.splits import Split, read_split
from eopipe.chips.statistics import band_normaliser, read_statistics
from eopipe.errors import BadInputError, UsageError
from eopipe.loader.loader import ChipLoader
from eopipe.loader.prefetch import BatchRequest
from eopipe.publish import MANIFEST
from eopipe.text_table import html_table
from eopipe.tiles.store import Tiles
from eopipe.training_job import Knobs, Pairs, Settings

SplitName = Literal["train", "val", "test"]


@dataclass(frozen=True)
class LoadedChips:
    """What a `ChipLoader` reads: stores, split file, bands and normalisation, order and augmentation.

    `chip` and `crop` are edges in pixels; without crops it is 0.
    """

    pairs: Pairs
    chips: Path
    bands: tuple[str, ...]
    normaliser: Normaliser
    chip: int
    crop: int
    settings: Settings
    knobs: Knobs


class ChipDataset(Dataset[tuple[Tensor, Tensor]]):
    """The chips of a split of a run: `dataset[i]` is an image and its labels, as a model of eopipe sees them.

    The image is float32 (band, y, x), normalised by mean and standard deviation of the training chips, and 0 where a
    pixel is not usable. Labels (y, x) are class numbers (int64, 255 without a label) or values (float32, NaN without).
    After `set_epoch` chips of `train` come in eopipe's order, each once an epoch, and augmented; both follow from seed
    and epoch alone. Before, and of the other splits, they come as they are, in the order of the split file. Workers of
    a `torch.utils.data.DataLoader` may read at the same time.
    """

    def __init__(self, loaded: LoadedChips, document: Split, split: SplitName) -> None:
        self.split: SplitName = split
        self.epoch: int | None = None
        self._loaded, self._document = loaded, document
        self._loader: ChipLoader | None = None
        self._process = 0

    @property
    def bands(self) -> tuple[str, ...]:
        """Names of the bands of the images."""
        return self._loaded.bands

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, by their numbers; of values the name of the quantity."""
        return tuple(self._document.classes)

    @property
    def normaliser(self) -> Normaliser:
        """Mean and standard deviation of each band in physical units."""
        return self._loaded.normaliser

    @property
    def edge(self) -> int:
        """Edge of a chip in pixels."""
        return self._loaded.chip

    @property
    def corners(self) -> IntArray:
        """Number of the scene, first row and first column in the grid (n, 3), in the order of the split file."""
        return self._document.samples[self.split].copy()

    @property
    def folder(self) -> Path:
        """The results of the run."""
        return self._loaded.chips.parent

    @property
    def stores(self) -> list[Tiles]:
        """The tile stores that the chips are from."""
        return [image for image, _ in self._loaded.pairs]

    def set_epoch(self, epoch: int) -> None:
        """Take order and augmentation of an epoch, counted from 0. Raises UsageError for a split that has none."""
        if self.split != "train" or epoch < 0:
            raise UsageError(f"set_epoch({epoch}) of chips of {self.split}: only chips of train have epochs, from 0")
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._document.samples[self.split])

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """An image (band, y, x) and its labels (y, x)."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"chip {index} of {len(self)} of {self.split}")
        loader = self._of_this_process()
        number = index % len(self) if self.epoch is None else int(loader.order.epoch(self.epoch)[index])
        batch = next(iter(loader.stream([BatchRequest(self.split, np.array([number]), self.epoch)])))
        # The next chip is read into the same memory.
        return batch.images_NCHW[0].clone(), batch.labels_NHW[0].clone()

    def __getstate__(self) -> dict[str, Any]:
        """Open files stay in their process."""
        return vars(self) | {"_loader": None}

    def __repr__(self) -> str:
        """The split, the number of chips, the bands and the classes."""
        bands, classes = ", ".join(self.bands), ", ".join(self.classes)
        return f"<{len(self)} chips of {self.split}: {self._loaded.chip} pixels, bands {bands}, classes {classes}>"

    def _repr_html_(self) -> str:
        chips, pixels = (getattr(self._document, kind).get(self.split, {}) for kind in ("chips", "pixels"))
        rows = [(name, f"{chips.get(name, 0):,}", f"{pixels.get(name, 0):,}") for name in self.classes]
        return html_table(repr(self)[1:-1], ("class", "chips with it", "labelled pixels"), rows)

    def _of_this_process(self) -> ChipLoader:
        """The loader of this process: a forked one must not read through the files of its parent."""
        if self._loader is None or self._process != os.getpid():
            self._loader, self._process = ChipLoader(self._loaded, torch.device("cpu")), os.getpid()
        return self._loader


def open_chips(
    results: str | Path,
    split: SplitName = "train",
    *,
    seed: int = 0,
    augment: Sequence[str] = ("symmetries",),
    crop: int = 0,
    stores: str | Path | None = None,
) -> ChipDataset:
    """The chips of a split of a finished or unfinished run, from the time on when it has its `split.json`.

    `results` is the folder of the run, `split` one of train, val and test. With `set_epoch` chips of `train` are
    augmented as `augment` lists (`train.augment` of a config), and are crops of `crop` pixels edge around a labelled
    pixel, if that is not 0. `stores` is the folder with `tiles` and `labels`, if it is not the run's
    folder: a chip set's.

    >>> import eopipe
    >>> train = eopipe.open_chips("results", "train")
    >>> image, labels = train[0]
    >>> image.shape[0] == len(train.bands), image.shape[1:] == labels.shape
    (True, True)

    Raises BadInputError where the run has no split, or its stores do not belong to the split, UsageError for options
    that there are not.
    """
    folder = Path(results)
    if split not in ("train", "val", "test"):
        raise UsageError(f"there is no split {split}; use train, val or test")
    if not (folder / "split.json").is_file():
        raise BadInputError(f"{folder} has no split.json; a run writes it after its tiles and labels")
    document, statistics = read_split(folder / "split.json"), read_statistics(folder / "statistics.json")
    pairs = _pairs(Path(stores or folder), document)
    check_statistics(statistics, document, [image for image, _ in pairs])
    if crop and not 0 < crop <= document.chip:
        raise UsageError(f"crop is {crop}, but chips have {document.chip} pixels; choose a smaller one")
    bands = pairs[0][0].names
    normaliser = band_normaliser(statistics, bands)
    settings, knobs = Settings.of({"batch": 1, "seed": seed, "augment": tuple(augment)}), Knobs(workers=0)
    loaded = LoadedChips(pairs, folder / "split.json", bands, normaliser, document.chip, crop, settings, knobs)
    return ChipDataset(loaded, document, split)


def _pairs(folder: Path, document: Split) -> Pairs:
    paths = {kind: _stores(folder / kind) for kind in ("tiles", "composites", "labels")}
    # A composite may have the name of a scene; the split is of one kind.
    kinds = [kind for kind in ("composites", "tiles") if set(document.scenes) <= paths[kind].keys()]
    if not kinds:
        missing = sorted(set(document.scenes) - paths["tiles"].keys() - paths["composites"].keys())
        raise BadInputError(f"{folder} has no store of {', '.join(missing[:5]) or 'one kind'}, of which the split is")
    images = tuple(paths[kinds[0]][scene] for scene in document.scenes)
    labels = {scene: path for scene, path in paths["labels"].items() if scene in ("", *document.scenes)}
    return pair_stores(images, tuple(labels.values()))


def _stores(folder: Path) -> dict[str, Path]:
    return {Tiles(path.parent).scene: path.parent for path in sorted(folder.glob(f"*.zarr/{MANIFEST}"))}
