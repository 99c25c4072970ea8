"""Read all that a run left behind and check that it belongs together."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eopipe.arrays import UInt8Array
from eopipe.chips.chips import pair_stores
from eopipe.chips.make_split import check_scenes
from eopipe.chips.splits import read_split
from eopipe.errors import BadInputError
from eopipe.models.model_folder import HISTORY, WEIGHTS, read_model_card
from eopipe.publish import read_json
from eopipe.reporting import data_tables as facts
from eopipe.reporting.maps import MapContent, MapPanel
from eopipe.reporting.palette import VALUE_COLORS, ValueScale, class_colors
from eopipe.reporting.panels import PanelGroup, map_panels, split_panel
from eopipe.reporting.quality import Quality, read_quality
from eopipe.reporting.rasters import MapFile, Pairs, Thin, View, cells_for, chosen, map_files, quicklook, roles, view
from eopipe.reporting.scores import scale_of, value_headline
from eopipe.reporting.wording import TIMES, counted, length, listed, percent, pixel_metres, score
from eopipe.telemetry.journal import METRICS, read


@dataclass(frozen=True)
class Said:
    """What only a person can say of a model: what it is for, what it must not be used for, who made it, its licence."""

    use: str = ""
    limits: tuple[str, ...] = ()
    author: str = ""
    license: str = ""


@dataclass(frozen=True)
class Sources:
    """The inputs of the report stage."""

    metrics: Path
    model: Path
    chips: Path
    classes: tuple[Path, ...]
    probabilities: tuple[Path, ...]
    tiles: tuple[Path, ...]
    labels: tuple[Path, ...]
    scenes: tuple[Path, ...]


@dataclass(frozen=True)
class Story:
    """All that the page and the map tell, read and drawn; `step` is the pixels a cell of a picture stands for."""

    title: str
    attribution: str
    classes: tuple[str, ...]
    colors: tuple[str, ...]
    metrics: dict[str, Any]
    model: dict[str, Any]
    history: dict[str, Any]
    split: dict[str, Any]
    items: list[facts.Item]
    pairs: Pairs
    quality: Quality
    views: list[View]
    blocks: list[PanelGroup]
    places: PanelGroup
    left_out: int
    step: int
    digests: list[facts.Row]
    said: Said
    scale: ValueScale | None = None

    @property
    def legend(self) -> tuple[str, ...]:
        """What each colour stands for: a class, or an interval of values."""
        return self.scale.names if self.scale else self.classes


def read_story(sources: Sources, title: str, attribution: str, colors: tuple[str, ...], said: Said) -> Story:
    """Read everything; raises BadInputError where parts do not belong together."""
    metrics, split = read_json(sources.metrics), read_split(sources.chips)
    model = read_model_card(sources.model)
    classes = _one_legend({"split": split, "scores": metrics, "model": model})
    pairs, items = pair_stores(sources.tiles, sources.labels), facts.read_items(sources.scenes)
    check_scenes(split, pairs)
    scale = scale_of(metrics)
    bands = (f"standard deviation of {classes[0]}", "scenes") if scale else classes
    files = map_files(sources.classes, sources.probabilities, pairs, bands)
    files.sort(key=lambda file: (facts.dates(items).get(file.scene, ""), file.scene))
    shown, cells = chosen(files, split), cells_for(files, pairs)
    palette, legend = (VALUE_COLORS, scale.names) if scale else (class_colors(classes, colors), classes)
    role = roles(split, cells)
    views = [view(file, pairs, role, cells, scale) for file in shown]
    return Story(
        title=title,
        attribution=attribution,
        classes=classes,
        colors=palette,
        metrics=metrics,
        model=model,
        history=read_json(sources.model / HISTORY) | {"steps": read(sources.model / METRICS)},
        split=split,
        items=items,
        pairs=pairs,
        quality=read_quality(pairs, facts.dates(items)),
        views=views,
        blocks=[map_panels(one, heading(one.scene, items), legend, palette) for one in views],
        places=_places(views, pairs, role, cells),
        left_out=len(files) - len(shown),
        step=cells.step,
        digests=_digests(sources, files, pairs),
        said=said,
        scale=scale,
    )


def _one_legend(sources: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    nameless = [where for where, value in sources.items() if "classes" not in value]
    if nameless:
        raise BadInputError(f"the file of the {' and of the '.join(nameless)} names no classes; is it the right one?")
    found = {where: value["classes"] for where, value in sources.items()}
    if len({tuple(names) for names in found.values()}) > 1:
        told = "; ".join(f"{where}: {', '.join(names)}" for where, names in found.items())
        raise BadInputError(f"split, scores and model know different classes ({told}); make them from one split")
    return tuple(found["split"])


def _places(views: list[View], pairs: Pairs, role: UInt8Array, cells: Thin) -> PanelGroup:
    whole = [one.colour for one in views if not one.scene]
    return split_panel(whole[0] if whole else quicklook([tiles for tiles, _ in pairs], cells), role)


def heading(scene: str, items: list[facts.Item]) -> str:
    """Say what stands above a map: its date and scene; nothing above a mosaic."""
    return f"{facts.dates(items).get(scene, '')} {scene}".strip()


def _digests(sources: Sources, files: list[MapFile], pairs: Pairs) -> list[facts.Row]:
    single = {"weights of the model": sources.model / WEIGHTS, "model": sources.model}
    single |= {"split": sources.chips, "scores": sources.metrics}
    return facts.digest_rows(single, files, pairs)


def map_content(story: Story) -> MapContent:
    """What the map figure of a run shows."""
    return MapContent(
        title=story.title,
        subtitle=value_headline(story.metrics) if story.scale else _scores(story.metrics),
        credit=story.attribution,
        classes=story.legend,
        colors=story.colors,
        grid=story.pairs[0][0].grid,
        step=story.step,
        panels=[MapPanel(heading(v.scene, story.items), v.classes[v.window], v.window) for v in story.views],
    )


def _scores(metrics: dict[str, Any]) -> str:
    model, baseline, majority = (metrics[name] for name in ("model", "pixel_baseline", "majority"))
    right = f"{percent(model['accuracy'])} of the test {counted(metrics)}s right, mIoU {score(model['miou'])}"
    others = f"per-pixel baseline {percent(baseline['accuracy'])}, majority class {percent(majority['accuracy'])}"
    return f"{right} ({others})"


def ground_words(story: Story) -> str:
    """Size of the grid and of a pixel, and the CRS."""
    grid = story.pairs[0][0].grid
    wide, high = pixel_metres(grid)
    rows, cols = grid.shape
    size = f"{length(cols * wide)}{TIMES}{length(rows * high)}"
    drawn = f"; a cell of the pictures is {story.step}{TIMES}{story.step} pixels" if story.step > 1 else ""
    return f"{cols}{TIMES}{rows} pixels of {length(wide)}: {size}, {grid.crs}{drawn}"


def task_of(story: Story) -> str:
    """What is learned."""
    return str(story.metrics.get("task", "segmentation"))


def collections(story: Story) -> str:
    """The collections of the scenes."""
    return listed(sorted({str(item.get("collection") or "an unnamed collection") for item in story.items}))


def span_words(story: Story) -> str:
    """First and last day of the scenes."""
    days = sorted(facts.dates(story.items).values())
    return f"{days[0]} to {days[-1]}" if days else "unknown dates"
