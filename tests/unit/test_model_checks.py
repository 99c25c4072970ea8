"""A training starts from the weights of an eopipe model, and from nothing that could run code (T17)."""

import io
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from builders import BANDS, write_model

from eopipe.errors import BadInputError, IntegrityError, RefusedError
from eopipe.models import Architecture
from eopipe.training.model_checks import check_init_fits, check_init_folder, head_tensors

ARCHITECTURE = Architecture("unet", 2, 2, 4, 1)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", "segmentation", ("no", "yes"), chip=16)


class Trap:
    """Runs code as soon as it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def test_a_model_that_fits_is_taken(model: Path) -> None:
    check_init_folder(model)
    check_init_fits(model, ARCHITECTURE, BANDS)


@pytest.mark.parametrize(
    ("architecture", "names"),
    [
        (ARCHITECTURE, ("head.2.weight", "head.2.bias")),
        (Architecture("unet", 2, 2, 4, 1, arguments=("head=linear",)), ("head.weight", "head.bias")),
        (Architecture("linear", 2, 5, 4, 1), ("weight", "bias")),
    ],
)
def test_a_model_for_other_classes_fits_but_for_its_head(
    model: Path, architecture: Architecture, names: tuple[str, ...]
) -> None:
    assert head_tensors(architecture) == names
    if architecture == ARCHITECTURE:
        check_init_fits(model, replace(architecture, classes=5), BANDS)


@pytest.mark.parametrize("name", ["model.pt", "weights", "model.safetensors", "dcp/.metadata", "lightning.ckpt"])
@pytest.mark.parametrize("writer", ["pickle", "torch"])
def test_a_pickle_is_refused_unopened_by_name_or_content(tmp_path: Path, name: str, writer: str) -> None:
    source, marker = tmp_path / "source", tmp_path / "fallen"
    path = source / name
    path.parent.mkdir(parents=True)
    if writer == "pickle":
        path.write_bytes(pickle.dumps(Trap(marker)))
    else:
        torch.save({"x": Trap(marker)}, archive := io.BytesIO())
        path.write_bytes(archive.getvalue())
    for candidate in (source, path):
        with pytest.raises(RefusedError, match="is a pickle"):
            check_init_folder(candidate)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("architecture", "bands", "message"),
    [
        (Architecture("unet", 2, 2, 8, 1), BANDS, "architecture.width is 8 here and 4 there"),
        (Architecture("unet", 2, 2, 4, 1, arguments=("size=tiny",)), BANDS, "architecture.arguments is"),
        (ARCHITECTURE, ("nir", "red"), "bands is"),
    ],
)
def test_another_model_is_refused_with_the_difference(
    model: Path, architecture: Architecture, bands: tuple[str, ...], message: str
) -> None:
    with pytest.raises(BadInputError, match=message):
        check_init_fits(model, architecture, bands)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"has no model\.json"):
        check_init_folder(tmp_path)


def test_damaged_weights_are_refused(model: Path) -> None:
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (model / "model.safetensors").write_bytes(weights)
    with pytest.raises(IntegrityError, match="other content"):
        check_init_folder(model)
