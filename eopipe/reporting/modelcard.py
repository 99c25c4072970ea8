"""The model card, as Mitchell et al. 2019 (doi:10.1145/3287560.3287596) want one, from what the run measured."""

from collections.abc import Iterator
from typing import Any

from eopipe import __version__
from eopipe.reporting import facts, tables, values
from eopipe.reporting.cards import Card, Part, Table
from eopipe.reporting.facts import Row
from eopipe.reporting.ground import length, pixel_metres
from eopipe.reporting.story import Story, ground_words
from eopipe.reporting.words import DASH, count, counted, listed, number, percent, plural, tested

TASKS = {"segmentation": "image-segmentation", "classification": "image-classification"}
UNSTATED = "none is stated (report.{name} in the config states it)"
ENERGY = (
    "Not measured. The run records and the crate tell the processor time of every job; no energy is guessed from it."
)
# Scores of a class below this share of the test places rest on little.
RARE = 0.01
MEASURED = {"accuracy": "accuracy", "miou": "mean_iou", "f1_macro": "f1", "rmse": "rmse", "mae": "mae"}
# What Hugging Face lists; any other licence goes by its name.
LICENCES = ("apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc0-1.0", "gpl-3.0", "bsd-3-clause")


def model_card(story: Story) -> Card:
    """The card of a story's model."""
    parts = (
        Part("Model", tables=(Table("What it is", ("Fact", "Value"), _model(story)),)),
        Part(
            "Intended use", text=(f"Use: {story.said.use.rstrip('.') or UNSTATED.format(name='use')}.", _scope(story))
        ),
        Part("Data and splits", text=tuple(_data(story))),
        _scores(story),
        Part("Limits", points=tuple(_limits(story))),
        Part("Energy", text=(ENERGY,)),
        Part("Licence", text=tuple(licence_words(story, "model"))),
        Part("How to cite", text=tuple(cite_words(story))),
        Part("How to use", command=_command()),
    )
    return Card(story.title, "Model card, written by eopipe from the run that made the model.", _matter(story), parts)


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


def _scores(story: Story) -> Part:
    found = story.metrics.get("intervals") or {}
    text = [f"On {tested(story.metrics)} of the published map, in places that no training chip touches."]
    if found:
        text.append(
            f"Intervals of {percent(found['level'])}: {found['method']}; {found['pieces']} pieces, "
            f"{found['draws']} draws."
        )
    rows = (_overall(story), _classes(story), _regions(story))
    return Part("Scores", text=tuple(text), tables=rows)


def _measures(story: Story) -> tuple[tuple[str, str], ...]:
    return values.MEASURES if story.scale else tables.MEASURES


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
        for key, name in _measures(story)
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
    shown = _measures(story)[:2]
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


def _limits(story: Story) -> Iterator[str]:
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


def _command() -> str:
    return "eopipe predict --model model --tiles TILES.zarr --classes classes.tif --probabilities probabilities.tif"


def licence_matter(name: str) -> dict[str, str]:
    """A licence as Hugging Face has it: an id of its list, or other and the name."""
    if not name:
        return {"license": "unknown"}
    if name.lower() in LICENCES:
        return {"license": name.lower()}
    link = name if "://" in name else f"https://spdx.org/licenses/{name}"
    return {"license": "other", "license_name": name.rstrip("/").rpartition("/")[2].lower(), "license_link": link}


def _matter(story: Story) -> dict[str, Any]:
    task = TASKS.get(task_of(story))
    kind = {"type": task or "image-regression", "name": task_of(story)}
    scores: dict[str, Any] = story.metrics["model"]
    found = [
        {"type": MEASURED[key], "value": scores[key], "name": name}
        for key, name in _measures(story)
        if key in MEASURED and scores[key] is not None
    ]
    data = {"type": "eopipe", "name": f"test places of {collections(story)}, {span_words(story)}"}
    told: dict[str, Any] = licence_matter(story.said.license) | {"library_name": "eopipe"}
    told |= {"pipeline_tag": task} if task else {}
    told |= {"tags": ["earth-observation", "remote-sensing", "safetensors", "onnx"]}
    told |= {"metrics": [one["type"] for one in found]} if found else {}
    results = [{"task": kind, "dataset": data, "metrics": found}] if found else []
    return told | ({"model-index": [{"name": story.title, "results": results}]} if results else {})
