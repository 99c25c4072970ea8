"""`eopipe sample`: a probability sample of a published map, as files to label."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np

from eopipe.areas.design import (
    Allocation,
    SampleDesign,
    SampledMap,
    SampledPixel,
    Stratum,
    allocate,
    expected_spreads,
    number_for,
)
from eopipe.areas.population import DrawnPixel, Population, StratumCounts
from eopipe.areas.sample_files import DESIGN, GEOPACKAGE, TABLE, write_geopackage, write_table
from eopipe.arrays import IntArray
from eopipe.contract import Argument
from eopipe.errors import BadInputError, UsageError
from eopipe.inference.finished_maps import check_whole
from eopipe.own_files import refuse_foreign_file, write_files
from eopipe.publish import sha256
from eopipe.text_files import write_json
from eopipe.text_table import format_table, shell_word

MAPS = "maps/*/classes.tif"
# The one of the overall accuracy, where nothing says how many pixels to draw.
STANDARD_ERROR = 0.02


def sample(
    maps: Annotated[
        tuple[Path, ...],
        Argument(
            "published map of classes or values, or those of all cells; or the folder of results", positional=True
        ),
    ],
    number: Annotated[int | None, Argument("pixels to draw", ge=2)] = None,
    standard_error: Annotated[
        float | None,
        Argument(
            "standard error of the overall accuracy to reach, such as 0.01, in the place of a number", gt=0, lt=0.5
        ),
    ] = None,
    expected_accuracy: Annotated[
        tuple[str, ...],
        Argument("expected user's accuracy, of all classes or of one, as 0.8 water=0.95", value="SHARE"),
    ] = ("0.8",),
    allocation: Annotated[
        Allocation,
        Argument("pixels of each stratum by its area, equal, or by area and expected spread (Neyman)"),
    ] = "proportional",
    minimum: Annotated[int, Argument("pixels that each stratum gets at least", ge=2)] = 50,
    seed: Annotated[int, Argument("seed of the draw: the same seed, the same pixels", ge=0)] = 0,
    show_class: Annotated[
        bool, Argument("also write what the map says, which an interpreter should not see before labelling")
    ] = False,
    to: Annotated[Path, Argument("folder to write to", value="FOLDER")] = Path("map-sample"),
) -> None:
    """Draw a stratified random sample of a published map, as files to label.

    Strata are the classes of the map, also from-to classes, or five intervals of its values with about as many pixels
    each. All pixels of a stratum are as likely, none is drawn twice, and ground that two cells cover belongs to one of
    them. The folder gets sample.gpkg for QGIS, with a form and a pick list of the classes, sample.csv for Collect Earth
    Online, and sample.json, the design. Raises UsageError for fewer pixels than the minima, and where the folder has a
    sample, whose labels would be lost; BadInputError for maps of the same ground, or of the places of one split alone.
    """
    if number is not None and standard_error is not None:
        raise UsageError("--number and --standard-error both say how many pixels to draw; give one of them")
    for name in (GEOPACKAGE, TABLE):
        refuse_foreign_file(to / name)
    paths = [path for each in maps for path in (sorted(each.glob(MAPS)) if each.is_dir() else [each])]
    if not paths:
        raise BadInputError(f"{maps[0]} has no {MAPS}; give a map, or the folder of results of a finished run")
    check_whole(tuple(paths))
    population = Population.open(paths)
    counts, names = population.count(), population.stratum_names
    if standard_error is not None and population.maps[0].quantity:
        raise UsageError("--standard-error is of the accuracy of classes; give a --number for a map of values")
    spreads = expected_spreads(expected_accuracy, names)
    size = number or number_for(standard_error or STANDARD_ERROR, counts.hectares, spreads)
    if number is None:
        least = int(np.minimum(counts.total_pixels, minimum).sum())
        size = min(max(size, least), int(counts.total_pixels.sum()))
    weights = {
        "proportional": counts.hectares,
        "equal": np.ones(len(names)),
        "neyman": counts.hectares * spreads,
    }[allocation]
    sizes = allocate(size, counts.total_pixels, weights, minimum, names)
    drawn = population.draw(counts, sizes, seed)
    rule = {"allocation": allocation, "minimum": minimum, "seed": seed, "standard_error": standard_error}
    design = _design(population, counts, sizes, drawn, rule)
    with TemporaryDirectory() as temporary:
        files = {name: Path(temporary) / name for name in (GEOPACKAGE, TABLE, DESIGN)}
        write_geopackage(files[GEOPACKAGE], design, population, with_class=show_class)
        write_table(files[TABLE], design, with_class=show_class)
        write_json(files[DESIGN], design.model_dump(mode="json"))
        write_files(to, files)
    _print(design, to)


def _design(
    population: Population, counts: StratumCounts, sizes: IntArray, drawn: list[DrawnPixel], rule: dict[str, Any]
) -> SampleDesign:
    """The design; strata without a pixel are left out."""
    used = np.flatnonzero(counts.total_pixels)
    numbers = {stratum: number for number, stratum in enumerate(used.tolist())}
    strata = [
        Stratum(
            name=population.stratum_names[stratum],
            pixels=int(counts.total_pixels[stratum]),
            hectares=float(f"{counts.hectares[stratum]:.9g}"),
            sampled=int(sizes[stratum]),
        )
        for stratum in used.tolist()
    ]
    first = population.maps[0]
    pixels = [
        SampledPixel(
            id=number,
            stratum=numbers[pixel.stratum],
            map=pixel.map,
            row=pixel.row,
            column=pixel.column,
            mapped=pixel.mapped if first.quantity else int(pixel.mapped),
            hectares=float(f"{pixel.hectares:.9g}"),
            inclusion_probability=float(sizes[pixel.stratum] / counts.total_pixels[pixel.stratum]),
            longitude=round(pixel.longitude, 9),
            latitude=round(pixel.latitude, 9),
        )
        for number, pixel in enumerate(drawn, 1)
    ]
    return SampleDesign(
        classes=[*first.names],
        quantity=first.quantity,
        maps=[
            SampledMap(name=each.classes.name, sha256=sha256(each.classes), cell=each.cell) for each in population.maps
        ],
        **rule,
        strata=strata,
        pixels=pixels,
    )


def _print(design: SampleDesign, folder: Path) -> None:
    rows = [("stratum", "hectares", "share", "pixels drawn", "of")]
    total = sum(stratum.hectares for stratum in design.strata)
    rows += [
        (s.name, f"{s.hectares:,.1f}", f"{100 * s.hectares / total:.1f} %", str(s.sampled), f"{s.pixels:,}")
        for s in design.strata
    ]
    print("\n".join(format_table(rows, left=(0,))))
    labelled = shell_word(folder / GEOPACKAGE)
    print(
        f"{labelled}: {len(design.pixels)} points to label in QGIS; {shell_word(folder / TABLE)}: the same for others"
    )
    print(f"then: eopipe estimate --sample {labelled} --classes MAP ...")
