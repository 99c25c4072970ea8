"""Cards: what a model or its data are, for whoever meets them without the run; as Markdown and in the page."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from eopipe import __version__
from eopipe.reporting import data_tables as facts
from eopipe.reporting import scores as tables
from eopipe.reporting.data_tables import Row
from eopipe.reporting.run_data import Story, collections, ground_words, span_words, task_of
from eopipe.reporting.wording import DASH, count, counted, length, listed, number, percent, pixel_metres, plural, tested


@dataclass(frozen=True)
class Table:
    """Rows under heads; the first cell of a row names it."""

    caption: str
    heads: Row
    rows: list[Row]


@dataclass(frozen=True)
class Part:
    """A headed part of a card: paragraphs, points, tables, a command."""

    title: str
    text: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    command: str = ""


@dataclass(frozen=True)
class Card:
    """A card, with what catalogues read of it (the front matter of Hugging Face)."""

    title: str
    kind: str
    matter: dict[str, Any]
    parts: tuple[Part, ...]


def markdown(card: Card) -> str:
    """The card as Markdown with YAML front matter; text from outside cannot become markup."""
    matter = yaml.safe_dump(card.matter, sort_keys=False, allow_unicode=True, width=100)
    lines = ["---", *matter.splitlines(), "---", "", f"# {_plain(card.title)}", "", card.kind, ""]
    for part in card.parts:
        lines += [f"## {part.title}", ""]
        lines += [line for text in part.text for line in (_plain(text), "")]
        lines += [*(f"- {_plain(point)}" for point in part.points), *[""] * bool(part.points)]
        lines += [line for table in part.tables if table.rows for line in _table(table)]
        lines += ["```console", part.command, "```", ""] if part.command else []
    return "\n".join(lines)


def _table(table: Table) -> list[str]:
    head = ["", f"*{_plain(table.caption)}*", "", _line(table.heads), "|" + "---|" * len(table.heads)]
    return [*head[1:], *map(_line, table.rows), ""]


def _line(cells: Row) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """Text on one line in which nothing is markup; addresses stay readable."""
    return re.sub(r"([\\`*\[\]<>|#])", r"\\\1", " ".join(str(text).split()))


UNSTATED = "none is stated (report.{name} in the config states it)"
# What Hugging Face lists; any other licence goes by its name.
LICENCES = ("apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc0-1.0", "gpl-3.0", "bsd-3-clause")


def licence_words(story: Story, what: str) -> Iterator[str]:
    """The licence of what was made, and those of the scenes and labels that it was made from."""
    yield f"Licence of the {what}: {story.said.license or UNSTATED.format(name='license')}."
    named = [one.text for one in facts.licences(story.items)]
    yield f"Licence of the scenes: {'; '.join(named) or 'their items name none'}. Labels keep that of their source."


def cite_words(story: Story) -> Iterator[str]:
    """How to cite the run, and the data that it rests on."""
    author = story.said.author or "Author not stated (report.author in the config states one)"
    yield f"{author}: {story.title}. Made with eopipe {__version__}; weights sha256 {story.digests[0][1]}."
    yield "Where the crate of the run is published, cite that: it proves what is told here."
    for cite in facts.citations(story.items):
        yield f"Data: {cite.text} {cite.address}".strip()
    credits_ = [*facts.credits_of(story.items), *filter(None, [story.attribution])]
    yield from ([f"Credits: {'; '.join(dict.fromkeys(credits_))}."] if credits_ else [])


def licence_matter(name: str) -> dict[str, str]:
    """A licence as Hugging Face has it: an id of its list, or other and the name."""
    if not name:
        return {"license": "unknown"}
    if name.lower() in LICENCES:
        return {"license": name.lower()}
    link = name if "://" in name else f"https://spdx.org/licenses/{name}"
    return {"license": "other", "license_name": name.rstrip("/").rpartition("/")[2].lower(), "license_link": link}


# Scores of a class below this share of the test places rest on little.
RARE = 0.01


def limits_of(story: Story) -> Iterator[str]:
    """What a person said, and what follows from how the run was tested."""
    yield from story.said.limits
    grid = story.pairs[0][0].grid
    wide, high = (edge * side for edge, side in zip(grid.shape[::-1], pixel_metres(grid), strict=True))
    yield f"Tested in one area of {length(wide)} by {length(high)}; nothing is known of other places."
    yield f"Scenes of {span_words(story)} only; other years and seasons were not tested."
    yield "The scores compare with labels, whose own errors are not known here."
    yield from _doubts(story)


def _doubts(story: Story) -> Iterator[str]:
    found = story.metrics.get("intervals") or {}
    if not found:
        yield "No interval could be made: the test places fall into fewer than two pieces."
    elif found["edge"]:
        yield "Labels that are alike over more than a piece make the intervals too narrow."
    gain = found.get("gain", {}).get("rmse" if story.scale else "miou")
    if gain and gain[0] <= 0 <= gain[1]:
        yield "Whether it is better than the per-pixel baseline is not certain: the interval of the gain holds 0."
    if story.split["audit"]["gap_pixels"].get("train-test") == 0:
        yield "Training and test chips touch, so the scores may be somewhat too good."
    for finding in story.split["audit"].get("allowed") or []:
        yield f"The audit of the splits found {finding['kind']} {finding['count']} times; allowed: {finding['reason']}."
    each = story.metrics["model"].get("per_class", {})
    total = sum(row["pixels"] for row in each.values())
    for name, row in each.items():
        if row["pixels"] < RARE * total:
            yield f"Class {name} has {count(row['pixels'])} test {counted(story.metrics)}s, so its scores say little."


def scores_part(story: Story) -> Part:
    """Scores of the map, of each class and of each quarter."""
    found = story.metrics.get("intervals") or {}
    text = [f"On {tested(story.metrics)} of the published map, in places that no training chip touches."]
    if found:
        text.append(
            f"Intervals of {percent(found['level'])}: {found['method']}; {found['pieces']} pieces, "
            f"{found['draws']} draws."
        )
    rows = (_overall(story), _classes(story), _regions(story))
    return Part("Scores", text=tuple(text), tables=rows)


def measures_of(story: Story) -> tuple[tuple[str, str], ...]:
    """The keys of the scores and their names."""
    return tables.VALUE_MEASURES if story.scale else tables.MEASURES


def _overall(story: Story) -> Table:
    found = story.metrics.get("intervals") or {}
    mine, other = story.metrics["model"], story.metrics["pixel_baseline"]
    rows: list[Row] = [
        (
            name,
            _figure(mine[key]),
            _interval(found.get("model", {}).get(key)),
            _figure(other[key]),
            _interval(found.get("gain", {}).get(key)),
        )
        for key, name in measures_of(story)
    ]
    heads = ("Measure", "Model", "Interval", "Per-pixel baseline", "Model less baseline")
    return Table(f"Scores{_unit(story)}", heads, rows)


def _unit(story: Story) -> str:
    return f" in {story.scale.unit}" if story.scale and story.scale.unit else ""


def _classes(story: Story) -> Table:
    """IoU, precision and recall of each class with their intervals; nothing of values."""
    found, rows = (story.metrics.get("intervals") or {}).get("model", {}), []
    known = story.metrics["model"].get("per_class", {})
    for name in known and story.classes:
        each = known[name]
        cells = [f"{_figure(each[k])} {_interval(found.get(f'{k}:{name}'))}" for k in ("iou", "precision", "recall")]
        rows.append((name, *cells, count(each["pixels"])))
    heads = ("Class", "IoU", "Precision", "Recall", f"Test {counted(story.metrics)}s")
    return Table("Each class, with intervals", heads, rows)


def _regions(story: Story) -> Table:
    shown = measures_of(story)[:2]
    rows = [
        (
            region["name"],
            *(f"{_figure(region['scores'][key])} {_interval(region['intervals'].get(key))}" for key, _ in shown),
            count(region["pieces"]),
        )
        for region in story.metrics.get("regions", [])
    ]
    heads = ("Region", *(name for _, name in shown), "Pieces")
    return Table("Each quarter of the test places, with intervals where there are pieces enough", heads, rows)


def _figure(value: float | None) -> str:
    return DASH if value is None else f"{value:.4g}"


def _interval(ends: list[float] | None) -> str:
    return f"({ends[0]:.4g} to {ends[1]:.4g})" if ends else f"({DASH})"


TASKS = {"segmentation": "image-segmentation", "classification": "image-classification"}
ENERGY = (
    "Not measured. The run records and the crate tell the processor time of every job; no energy is guessed from it."
)
MEASURED = {"accuracy": "accuracy", "miou": "mean_iou", "f1_macro": "f1", "rmse": "rmse", "mae": "mae"}


def model_card(story: Story) -> Card:
    """The card of a story's model."""
    parts = (
        Part("Model", tables=(Table("What it is", ("Fact", "Value"), _model(story)),)),
        Part(
            "Intended use", text=(f"Use: {story.said.use.rstrip('.') or UNSTATED.format(name='use')}.", _scope(story))
        ),
        Part("Data and splits", text=tuple(_data(story))),
        scores_part(story),
        Part("Limits", points=tuple(limits_of(story))),
        Part("Energy", text=(ENERGY,)),
        Part("Licence", text=tuple(licence_words(story, "model"))),
        Part("How to cite", text=tuple(cite_words(story))),
        Part("How to use", command=_command()),
    )
    return Card(
        story.title, "Model card, written by eopipe from the run that made the model.", _model_matter(story), parts
    )


def _model(story: Story) -> list[Row]:
    model = story.model
    return [
        ("task", task_of(story)),
        ("answers", number(story.classes)),
        ("architecture", str(model["architecture"])),
        ("parameters", count(model["parameters"])),
        ("bands, by name", number(model["bands"])),
        ("chip", f"{model['chip']} pixels"),
        ("weights (sha256)", story.digests[0][1]),
        ("made by", f"eopipe {__version__}"),
    ]


def _scope(story: Story) -> str:
    wide, _ = pixel_metres(story.pairs[0][0].grid)
    return (
        f"It was made to map {listed(list(story.classes))} from the bands {listed(list(story.model['bands']))} of "
        f"{collections(story)} at {length(wide)} a pixel. Other sensors, bands, pixel sizes, seasons and regions were "
        "not tested."
    )


def _data(story: Story) -> Iterator[str]:
    samples = story.split["samples"]
    yield f"{plural(len(story.items), 'scene')} of {collections(story)}, {span_words(story)}: {ground_words(story)}."
    chips = listed([f"{count(len(samples[name]))} {name}" for name in ("train", "val", "test")])
    gap = facts.gap_words(story.split, story.pairs)
    yield f"Chips: {chips}, split by the method {story.split['plan']['method']}. {gap} The data card tells more."


def _command() -> str:
    return "eopipe predict --model model --tiles TILES.zarr --classes classes.tif --probabilities probabilities.tif"


def _model_matter(story: Story) -> dict[str, Any]:
    task = TASKS.get(task_of(story))
    kind = {"type": task or "image-regression", "name": task_of(story)}
    scores: dict[str, Any] = story.metrics["model"]
    found = [
        {"type": MEASURED[key], "value": scores[key], "name": name}
        for key, name in measures_of(story)
        if key in MEASURED and scores[key] is not None
    ]
    data = {"type": "eopipe", "name": f"test places of {collections(story)}, {span_words(story)}"}
    told: dict[str, Any] = licence_matter(story.said.license) | {"library_name": "eopipe"}
    told |= {"pipeline_tag": task} if task else {}
    told |= {"tags": ["earth-observation", "remote-sensing", "safetensors", "onnx"]}
    told |= {"metrics": [one["type"] for one in found]} if found else {}
    results = [{"task": kind, "dataset": data, "metrics": found}] if found else []
    return told | ({"model-index": [{"name": story.title, "results": results}]} if results else {})


SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
PROCESSING = (
    "Each scene was warped onto one grid as integers with scale and offset; pixels that its mask calls cloud, shadow "
    "or fill are not used. Labels were put onto the same grid. Chips are cut from both and dealt out to the splits."
)
SCENES = ("Scene", "Date", "Cloud", "No data", "Masked", "Saturated", "Valid", "Chips", "Note")


def data_card(story: Story) -> Card:
    """The card of a story's data."""
    scenes = facts.scene_rows(story.items, story.pairs, story.quality.drifted, story.split)
    parts = (
        Part("What it is", text=tuple(_what(story))),
        Part(
            "How it was made",
            text=(PROCESSING,),
            tables=(_settings_table(facts.plan_rows(story.split)),),
        ),
        Part("Scenes", tables=(Table("Cloud as the catalog says, all else as measured on the grid", SCENES, scenes),)),
        _splits(story),
        Part("Limits", points=tuple(_data_limits(story))),
        Part("Licence", text=tuple(licence_words(story, "stores that were made"))),
        Part("How to cite", text=tuple(cite_words(story))),
    )
    return Card(
        story.title, "Data card, written by eopipe from the run that used the data.", _data_matter(story), parts
    )


def _what(story: Story) -> Iterator[str]:
    yield f"{plural(len(story.items), 'scene')} of {collections(story)}, {span_words(story)}: {ground_words(story)}."
    bands = listed(list(story.model["bands"]))
    yield f"Bands {bands}; labels: {listed(list(story.classes))}; made for {task_of(story)}."


def _settings_table(rows: list[Row]) -> Table:
    return Table("Settings of the split", ("Setting", "Value"), rows)


def _splits(story: Story) -> Part:
    gaps = Table(
        "Gap between the nearest chips", ("Splits", "Pixels", "On the ground"), facts.gap_rows(story.split, story.pairs)
    )
    pixels = ("Class", "Train", "Validation", "Test")
    found = Table(
        "Leaks that were found and allowed", ("Kind", "Times", "Example", "Reason"), facts.finding_rows(story.split)
    )
    return Part(
        "Labels and splits",
        tables=(
            Table("Labelled pixels of each split over all scenes, and chips", pixels, facts.pixel_rows(story.split)),
            Table("What became of all chips", ("Chips", "Number", "Share"), facts.fate_rows(story.split)),
            gaps,
            found,
        ),
    )


def _data_limits(story: Story) -> Iterator[str]:
    yield f"One area and {span_words(story)}; other places and times may look otherwise."
    yield "Errors of the labels and of the masks are not known here."
    for scene, (band, shift) in sorted(story.quality.drifted.items()):
        yield f"Scene {scene} is unlike the rest: {band} by {shift:.1f} quartile ranges."
    for one in story.split.get("left_out") or []:
        yield f"Scene {one['scene']} was left out: valid on {number(100 * one['valid'])} % of the grid."
    gap = facts.gap_words(story.split, story.pairs)
    if gap:
        yield gap


def _data_matter(story: Story) -> dict[str, Any]:
    chips = sum(len(rows) for rows in story.split["samples"].values())
    size = next((words for most, words in SIZES if chips < most), "n>1M")
    told: dict[str, Any] = {"pretty_name": story.title} | licence_matter(story.said.license)
    told |= {"task_categories": [TASKS[task_of(story)]]} if task_of(story) in TASKS else {}
    return told | {"size_categories": [size], "tags": ["earth-observation", "remote-sensing", "stac", "zarr"]}
