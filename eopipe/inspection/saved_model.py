"""A model that was trained in another loop, as a model folder that the stages read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from eopipe.chips.statistics import read_statistics
from eopipe.errors import BadInputError
from eopipe.inspection.chip_dataset import ChipDataset
from eopipe.models import Architecture
from eopipe.models.build import WrappedModel
from eopipe.models.input_check import ORDINARY, TileProperties
from eopipe.models.model_files import copy_files, libraries, module_of
from eopipe.models.model_folder import TrainedModel, write_model_folder
from eopipe.publish import publish
from eopipe.training.model_checks import fixed_window
from eopipe.training_job import Settings

if TYPE_CHECKING:
    from torch import Tensor


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
