"""Trained models in Python: one that predicts for arrays what `predict` does, and weights as a model folder."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray
from eopipe.chips.statistics import read_statistics
from eopipe.errors import BadInputError, UsageError
from eopipe.inference.mosaic import task_predictions, task_predictor
from eopipe.inference.predictor import PredictorSettings, predictor_of_images
from eopipe.inspection.chip_dataset import ChipDataset
from eopipe.models import Architecture
from eopipe.models.build import WrappedModel
from eopipe.models.input_check import ORDINARY, RATIO, TileProperties, unit_of_numbers
from eopipe.models.model_files import copy_files, libraries, module_of
from eopipe.models.model_folder import TrainedModel, model_id, read_trained_model, write_model_folder
from eopipe.publish import publish
from eopipe.text_table import html_table
from eopipe.tiles.grid import PixelWindow
from eopipe.training.model_checks import fixed_window
from eopipe.training_job import Settings

if TYPE_CHECKING:
    import xarray
    from torch import Tensor

# The last axes of an array without names: band, row and column.
AXES = ("band", "y", "x")
CHANNEL = "class"
# Attributes by which stored numbers become physical values, and what is so without them.
CODING = {"scale_factor": 1.0, "add_offset": 0.0}
# Edge in pixels of the windows of an image.
WINDOW = 512


class ArrayImage:
    """An image (band, y, x) in memory, in physical units, that a model maps as it does a store; NaN means no data."""

    scaling: tuple[float, float] = (1.0, 0.0)

    def __init__(self, scene: str, pixels: FloatArray, names: tuple[str, ...]) -> None:
        self.scene, self.pixels, self.names = scene, pixels, names
        self.is_valid: BoolArray = np.asarray(np.isfinite(pixels).all(0))

    @property
    def shape(self) -> tuple[int, int]:
        height, width = self.is_valid.shape
        return height, width

    def valid(self, y: slice = slice(None), x: slice = slice(None)) -> BoolArray:
        """Mask (y, x) of a window: where all bands are finite."""
        return self.is_valid[y, x]

    def read(self, name: str, y: slice = slice(None), x: slice = slice(None)) -> AnyArray:
        """The pixels (band, y, x) of a window; `name` is image."""
        if name != "image":
            raise BadInputError(f"an array has no {name}")
        return self.pixels[:, y, x]

    def reaches(self, window: PixelWindow) -> bool:
        """Whether any pixel of a window is valid."""
        return bool(self.is_valid[window].any())


def read_array(images: Any, trained_on: TileProperties | None) -> FloatArray:
    """The physical values of an array as float32, NaN where it says that there are no data.

    It says so by its mask (numpy) or by attributes of CF (section 2.5 and 8.1, as rioxarray leaves them in `attrs`):
    `_FillValue`, `missing_value`, `valid_min`, `valid_max`, `valid_range`, `scale_factor`, `add_offset`, `units`.
    Raises BadInputError for numbers of another unit than in the training: also for integers that nothing scales.
    """
    attributes: Mapping[str, Any] = getattr(images, "attrs", {})
    stored = np.ma.asarray(getattr(images, "values", images))
    values, is_missing = stored.data, np.array(np.ma.getmaskarray(stored))
    for name in ("_FillValue", "missing_value"):
        is_missing |= np.isin(values, np.asarray(attributes.get(name, ()), np.float64))
    low, high = attributes.get("valid_range", (attributes.get("valid_min"), attributes.get("valid_max")))
    is_missing |= values < (-np.inf if low is None else low)
    is_missing |= values > (np.inf if high is None else high)
    scale, offset = (float(attributes.get(name, otherwise)) for name, otherwise in CODING.items())
    unit = unit_of_numbers(str(attributes.get("units", "")), values.dtype, (scale, offset))
    # Without attributes nothing is known about real numbers.
    if trained_on and unit not in (RATIO, *trained_on.units):
        raise BadInputError(
            f"the array has {unit}, and the model learned from {' or '.join(trained_on.units)}; give physical values, "
            "or an xarray with the attributes scale_factor and add_offset"
        )
    physical = values.astype(np.float32) * np.float32(scale) + np.float32(offset)
    physical[is_missing] = np.nan
    return physical


def _runs_back(images: "xarray.DataArray", axis: str) -> bool:
    """Whether coordinates of y run north, or coordinates of x west."""
    values = images.coords[axis].values if axis in images.coords else np.arange(0)
    return bool(values.size > 1 and (values[0] < values[-1]) == (axis == "y"))


class LoadedModel:
    """A trained model: what it needs, and its predictions for arrays.

    `classes` are the names of the classes by their numbers, of a regression the name of the quantity; `task` is
    segmentation, classification, multilabel or regression.
    """

    def __init__(self, path: Path, trained: TrainedModel, threads: int) -> None:
        self.path, self.trained, self.threads = path, trained, threads

    @property
    def bands(self) -> tuple[str, ...]:
        """Names of the bands, in the order of an array without names."""
        return self.trained.bands

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, by their numbers."""
        return self.trained.classes

    @property
    def task(self) -> str:
        return self.trained.task

    @property
    def members(self) -> int:
        """The number of models whose mean prediction it gives: more than 1 of an ensemble."""
        return self.trained.members

    def __repr__(self) -> str:
        """The id, the architecture and the task."""
        return f"<model {model_id(self.path)}: {self.trained.architecture.name}, {self.task}>"

    def _repr_html_(self) -> str:
        rows = [("bands", ", ".join(self.bands)), ("classes", ", ".join(self.classes))]
        rows += [("ensemble", f"{self.members} members")] if self.members > 1 else []
        rows += [("chip", f"{self.trained.chip} pixels"), ("folder", str(self.path))]
        return html_table(repr(self)[1:-1], ("", ""), rows)

    @overload
    def predict(self, images: "np.ndarray[Any, Any]") -> FloatArray: ...

    @overload
    def predict(self, images: "xarray.DataArray | xarray.Dataset") -> "xarray.DataArray": ...

    def predict(self, images: Any) -> Any:
        """Probabilities of the classes (class, y, x) of an image (band, y, x), or of each of several (…, band, y, x).

        `images` are in physical units (reflectance, dB), as `open_cube` gives them, with NaN where there are no data;
        the mask of an array of numpy and the fill value, valid range, scale and offset of xarray are applied. An array
        of numpy has the bands in the order of `bands`; bands of xarray are selected by their names, and the result
        keeps all coordinates. In a dataset with `image` and `valid`, pixels that are not valid count as no data.
        Probabilities are float32 and NaN where any band has no data; they are not calibrated. A chip classifier gives
        the same for all pixels of a chip, a regression its values under one class, the quantity. The image is
        predicted in windows without seams, one image in memory at a time.

        >>> import eopipe
        >>> model = eopipe.load_model("results/model")
        >>> cube = eopipe.open_cube("results", "composites")
        >>> model.predict(cube).dims
        ('time', 'class', 'y', 'x')

        Raises BadInputError for other bands, dimensions or units.
        """
        import xarray

        if isinstance(images, xarray.Dataset):
            images = images["image"].where(images["valid"]) if "valid" in images else images["image"]
        if isinstance(images, xarray.DataArray):
            return self._predict_named(images)
        array = np.ma.asarray(images)
        if array.ndim < len(AXES) or array.shape[-3] != len(self.bands):
            raise BadInputError(
                f"the array has shape {array.shape}; give (…, band, y, x) with the {len(self.bands)} bands "
                f"{', '.join(self.bands)}"
            )
        flat = array.reshape(-1, *array.shape[-3:])
        mapped = np.stack([self._predict_image(f"image {n}", image, self.bands) for n, image in enumerate(flat)])
        return mapped.reshape(*array.shape[:-3], *mapped.shape[1:])

    def _predict_named(self, images: "xarray.DataArray") -> "xarray.DataArray":
        import xarray

        if missing := [axis for axis in AXES if axis not in images.dims]:
            raise BadInputError(f"the array has dimensions {', '.join(map(str, images.dims))}, but no {missing[0]}")
        if "band" not in images.coords:
            raise BadInputError(
                f"the array has no names of its bands: give it a coordinate band of {', '.join(self.bands)}"
            )
        others = [name for name in images.dims if name not in AXES]
        # From north to south and from west to east, as in the training.
        turned = {axis: slice(None, None, -1) for axis in AXES[1:] if _runs_back(images, axis)}
        ordered, names = images.isel(turned).transpose(*others, *AXES), tuple(map(str, images["band"].values.tolist()))
        sizes = [ordered.sizes[name] for name in others]
        mapped = np.full((*sizes, len(self.classes), *ordered.shape[-2:]), np.nan, np.float32)
        for place in np.ndindex(*sizes):
            title = ", ".join(f"{name} {number}" for name, number in zip(others, place, strict=True)) or "image"
            mapped[place] = self._predict_image(title, ordered[place], names)
        coordinates = {name: value for name, value in ordered.coords.items() if "band" not in value.dims}
        coordinates |= {CHANNEL: (CHANNEL, list(self.classes))}
        attributes = {"model": model_id(self.path)}
        return xarray.DataArray(mapped, coordinates, (*others, CHANNEL, "y", "x"), attrs=attributes).isel(turned)

    def _predict_image(self, title: str, pixels: Any, names: tuple[str, ...]) -> FloatArray:
        """Predictions (class, y, x) of one image (band, y, x)."""
        image, count = ArrayImage(title, read_array(pixels, self.trained.trained_on), names), len(self.classes)
        settings = PredictorSettings(WINDOW, None, "auto", self.threads)
        predictor = predictor_of_images(self.trained, self.path, [image], settings)
        mapped = np.full((count, *image.shape), np.nan, np.float32)
        for y, x, prediction, scene_count in task_predictions(task_predictor(predictor, self.trained), self.trained):
            mapped[:, y, x] = np.where(scene_count > 0, prediction[:count], np.nan)
        return mapped


def load_model(path: str | Path, *, allow_code: str | None = None, threads: int = 0) -> LoadedModel:
    """Load a trained model: its folder, its STAC Item `model.json`, or the results of its run.

    A custom model runs its own code, so `allow_code` has to name its class, which its `model.json` has as
    module:Class or file.py:Class. `threads` windows are predicted at a time; 0: one per core, at most 8.

    >>> import eopipe
    >>> eopipe.load_model("results").classes
    ('non-forest', 'forest')

    Raises BadInputError for what is not a model. Code without permission is a RefusedError of `predict`, which is the
    first to run it.
    """
    folder = Path(path)
    if threads < 0:
        raise UsageError(f"threads is {threads}; use 0 or more")
    model = folder / "model" if (folder / "model" / "model.json").is_file() else folder
    trained = read_trained_model(model)
    architecture = trained.architecture.with_permission(allow_code, in_python=True)
    return LoadedModel(model, replace(trained, architecture=architecture), threads)


def save_model(
    folder: str | Path,
    weights: "Mapping[str, Tensor]",
    chips: ChipDataset,
    architecture: str,
    *,
    arguments: Sequence[str] = (),
    model_files: Sequence[str | Path] = (),
) -> None:
    """Write a model folder for weights that your own loop trained on the chips of a run, for `eopipe predict`.

    `weights` are the `state_dict` of a model, `chips` its training chips: bands, normalisation and classes are theirs.
    `architecture`, `arguments` and `model_files` are as in the section `train` of a config: the class as module:Class
    or file.py:Class, its arguments as name=value, and the files of its code, which are copied. Its output are logits of
    the classes of each pixel (N, class, y, x).

    Raises BadInputError for weights that do not fit the class, UsageError for a class that cannot be built, or a folder
    that eopipe did not write.

    >>> import eopipe, torch
    >>> train = eopipe.open_chips("results", "train")
    >>> module = torch.nn.Conv2d(len(train.bands), len(train.classes), kernel_size=1)
    >>> eopipe.save_model("linear", module.state_dict(), train, "torch.nn:Conv2d", arguments=["kernel_size=1"])
    >>> eopipe.load_model("linear", allow_code="torch.nn:Conv2d").classes == train.classes
    True
    """
    values = vars(Settings(architecture=architecture, arguments=tuple(arguments), batch=1))
    built = Architecture.of(values | {"model_files": tuple(map(Path, model_files))}, chips.bands, len(chips.classes))
    module = built.build()
    try:
        (module.model if isinstance(module, WrappedModel) else module).load_state_dict(dict(weights))
    except RuntimeError as error:
        raise BadInputError(f"the weights do not fit {architecture}: {' '.join(str(error).split())[:300]}") from error
    statistics = read_statistics(chips.folder / "statistics.json")
    ranges = {name: band.quantiles(ORDINARY) for name, band in statistics.bands.items()}
    trained = TrainedModel(
        built,
        chips.bands,
        chips.classes,
        chips.normaliser,
        chips.edge,
        trained_on=TileProperties.of(chips.stores, ranges),
        window=fixed_window(module, built, chips.edge) if module_of(built.name) else 0,
    )
    with publish(Path(folder), folder=True) as draft:
        copy_files(built.files, draft)
        software = libraries(built.name, [Path(file) for file in model_files])
        write_model_folder(draft, trained, module.state_dict(), [], {"architecture": built.name}, software=software)
