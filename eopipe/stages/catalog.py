"""Model, maps and tiles of a run -> a static STAC catalog that any tool, and a later run, can search."""

from pathlib import Path
from typing import Annotated

from eopipe.contract import Input, Option, Output
from eopipe.ports import FrozenItems, License, ProbabilityMaps

# 2: colours and names of the classes; no licence where none is stated. 3: links of the model, its ONNX file, renders.
REVISION = 4
NEEDS = ("known_figures",)
DESCRIPTION = "Model, maps and tiles that eopipe made from satellite scenes."


def catalog(
    model: Annotated[Path, Input("trained model: its folder, or a STAC catalog that contains it", folder=True)],
    classes: Annotated[tuple[Path, ...], Input("class maps: one mosaic, or one per scene", format="image/tiff")],
    probabilities: ProbabilityMaps,
    tiles: Annotated[tuple[Path, ...], Input("tile stores that the maps were predicted from", folder=True)],
    catalog: Annotated[Path, Output("catalog", "self-contained STAC catalog of model, maps and tiles", folder=True)],
    *,
    scenes: FrozenItems = (),
    metrics: Annotated[Path | None, Input("test metrics of the maps", format="application/json")] = None,
    onnx: Annotated[
        Path | None, Input("the model in ONNX format, as export writes it", format="edam:format_2333")
    ] = None,
    areas: Annotated[
        Path | None, Input("areas of the classes, as estimate writes them", format="application/json")
    ] = None,
    require: Annotated[
        tuple[str, ...],
        Option(
            "figures that the map must reach, or nothing is published (exit code 9): scores, gain over the baseline "
            "(lower end of its interval), area_error (standard error / area) and accuracies of areas",
            section="evaluate",
            mapping=True,
            pattern=r"^\w+(:.+)?=\S+$",
        ),
    ] = (),
    title: Annotated[str, Option("title of the catalog", section="report", min_length=1)] = "eopipe run",
    license: License = "",  # noqa: A002 - the word of STAC
) -> None:
    """Export model, maps and tiles as a self-contained STAC catalog.

    The model keeps its own item (MLM extension), to which links and the ONNX file are added; maps and tiles are
    collections, so that a later `search --catalog --collections maps` finds them. Links are relative, checksums are
    multihashes, and files are hard-linked where the file system allows: treat them as read-only. Raises BadInputError
    for maps of other tiles, or tiles of other scenes, than those given, RequirementError for a map that does not reach
    the required figures.
    """
    from eopipe.evaluation.requirements import check_requirements
    from eopipe.inference.finished_maps import check_whole
    from eopipe.models.model_folder import model_item, read_model_card
    from eopipe.publish import publish
    from eopipe.stac.catalog import CatalogInputs, CatalogText, write_catalog

    check_whole(classes)
    check_requirements(require, metrics, areas)
    card = read_model_card(model)
    inputs = CatalogInputs(model_item(model), card, classes, probabilities, tiles, scenes, metrics, onnx, areas)
    with publish(catalog, folder=True) as draft:
        write_catalog(draft, inputs, CatalogText(title, DESCRIPTION, license))
