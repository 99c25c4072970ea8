"""The picture of a run for the gallery: its maps beside each other in the colours of the report, the legend below."""

from io import BytesIO
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

from eopipe.chips.splits import NO_SPLIT
from eopipe.evaluation.metrics_document import read_metrics
from eopipe.reporting.figures import ValueScale, add_text, axes_at, color_table, figure_style, new_figure, save_png
from eopipe.reporting.finished_run import read_finished_run
from eopipe.reporting.maps import MapContent, add_legend, cell_panels
from eopipe.reporting.rasters import map_files, page_decimation, read_map
from eopipe.reporting.run_data import AuthorStatements, ReportInputs
from eopipe.reporting.scores import scale_of
from eopipe.tasks import TASKS
from eopipe.tiles.store import NO_LABEL

# In inches, at 200 dots.
WIDTH, TALLEST, GAP, RAMP_HEIGHT, TEXT_SIZE = 1.8, 1.8, 0.06, 0.1, 8
# A picture of few colours is a small file.
COLORS, MOST_MAPS = 128, 2


def draw(folder: Path, model: Path, target: Path) -> None:
    """Write the picture of the project of a folder."""
    content = read_content(folder, model)
    with figure_style(*content.classes):
        figure, left = new_figure(WIDTH, WIDTH), 0.0
        columns = sum(panel.numbers.shape[1] for panel in content.panels)
        rows = max(panel.numbers.shape[0] for panel in content.panels)
        scale = min((WIDTH - GAP * (len(content.panels) - 1)) / columns, TALLEST / rows)
        end = rows * scale + GAP
        if content.scale:
            end = add_text(figure, ends_of(content.classes[0], content.scale), (GAP, end), WIDTH - GAP, TEXT_SIZE)
        else:
            end = add_legend(figure, (GAP, end), content.legend, WIDTH - GAP)
        figure.set_figheight(end + (RAMP_HEIGHT + GAP) * bool(content.scale))
        colors = color_table(content.colors)
        for panel in content.panels:
            height, width = (edge * scale for edge in panel.numbers.shape)
            axes = axes_at(figure, (left, 0, width, height))
            axes.imshow(colors[panel.numbers], interpolation="nearest", aspect="auto")
            left += width + GAP
        if content.scale:
            ramp = colors[None, : len(content.colors)]
            axes_at(figure, (0, end + GAP / 2, WIDTH, RAMP_HEIGHT)).imshow(ramp, aspect="auto")
        for axes in figure.axes:
            axes.set_axis_off()
        save_png(figure, buffer := BytesIO())
    with Image.open(buffer) as picture:
        picture.convert("RGB").quantize(COLORS).save(target, optimize=True)


def read_content(folder: Path, model: Path) -> MapContent:
    """The maps of a run that has ended."""
    results = folder / "results"
    classes, probabilities = (tuple(sorted(results.glob(f"maps/*/{k}.tif"))) for k in ("classes", "probabilities"))
    stores = sorted((results / "composites").glob("*.zarr")) or sorted((results / "tiles").glob("*.zarr"))
    items = tuple(sorted(results.glob("items/*.geojson")))
    inputs = ReportInputs(model, classes, probabilities, tuple(stores), scenes=items)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    run = read_finished_run(inputs, AuthorStatements(colors=tuple(config.get("report", {}).get("colors", ()))))
    views, scale = run.maps, run.scale
    if scale and (results / "metrics.json").is_file():
        # The report's scale is from the labels, while a model alone knows their mean and deviation.
        scale = scale_of(read_metrics(results / "metrics.json"))
        files = map_files(classes, probabilities, run.stores, TASKS[run.model["task"]].second_bands(run.classes))
        decimation = page_decimation(files, run.stores)
        no_role = np.full(decimation.shape, NO_SPLIT, np.uint8)
        chip = run.model["chip"]
        views = [read_map(file, run.stores, None, no_role, decimation, chip, scale) for file in files]
    if len(views) > MOST_MAPS:
        # The maps with the most pixels of other classes than the most frequent one.
        views = sorted(views, key=lambda view: np.sort(np.bincount(view.classes.ravel(), minlength=256)[:NO_LABEL])[-2])
    panels = [
        panel
        for view in views[-MOST_MAPS:]
        for panel in cell_panels("", view.classes, view.window, run.frame, run.step)
    ]
    return MapContent("", "", "", run.classes, run.colors, run.frame, run.step, panels, scale)


def ends_of(name: str, scale: ValueScale) -> str:
    """The range of a colour ramp, as text."""
    return f"{name}, {scale.ticks[0]:g} to {scale.text(scale.ticks[-1])}"
