"""The pictures of a map side by side, each with words for those who cannot see it."""

from dataclasses import dataclass

import numpy as np

from eopipe.arrays import BoolArray, FloatArray, UInt8Array
from eopipe.chips.splits import SPLITS
from eopipe.reporting.charts import outline
from eopipe.reporting.pictures import Picture, confidence, errors, indexed, photo, stretched, tinted
from eopipe.reporting.views import Colour, View
from eopipe.reporting.wording import listed, percent
from eopipe.tiles.store import NO_LABEL


@dataclass(frozen=True)
class Panel:
    """One picture with its title and its words."""

    title: str
    alt: str
    picture: Picture


@dataclass(frozen=True)
class Block:
    """The panels of one map; `test` is the outline of the test area in cells of `width` x `height`."""

    heading: str
    panels: list[Panel]
    test: str
    width: int
    height: int


def block(view: View, heading: str, classes: tuple[str, ...], colors: tuple[str, ...]) -> Block:
    """Quicklook, label, map, confidence and errors of one map, cut to where it has data."""
    cut = view.window
    label, mapped = view.label[cut], view.classes[cut]
    tested, shares = view.tested[cut], view.confidence[cut]
    kind = "classes" if view.error is None else "values"
    panels = [
        _photo(view),
        Panel("Label", f"Labels: {_shares(label, classes)}.", indexed(label, colors)),
        Panel(f"Predicted {kind}", f"Predicted {kind}: {_shares(mapped, classes)}.", indexed(mapped, colors)),
    ]
    if view.error is not None:
        panels += _of_values(shares, np.where(tested, view.error[cut], np.float32(np.nan)))
    else:
        panels.append(Panel("Confidence", _confidence_words(shares), confidence(shares, 1 / max(len(classes), 2))))
    if tested.any() and view.error is None:
        wrong = percent(float((label != mapped)[tested].mean()))
        words = f"Test pixels where map and label differ: {wrong} of those drawn."
        panels.append(Panel("Errors in the test area", words, errors(label, mapped, tested)))
    test = view.role[cut] == SPLITS.index("test")
    return Block(heading, panels, outline(test), test.shape[1], test.shape[0])


def _of_values(spread: FloatArray, error: FloatArray) -> list[Panel]:
    """How much the scenes of each pixel differ, and how far the map is off in the test places; dark is much."""
    named = {"Standard deviation among the scenes": spread, "Size of the error in the test area": error}
    panels = []
    for name, values in named.items():
        there = values[np.isfinite(values)]
        middle, high = np.percentile(there, (50, 98)) if there.size else (0.0, 0.0)
        picture = confidence(1 - values / np.float32(max(high, 1e-12)), 0.0)
        panels.append(
            Panel(f"{name}, dark {high:.3g}", f"{name}: median {middle:.3g}, 98 % below {high:.3g}.", picture)
        )
    return panels


def places(colour: Colour, role: UInt8Array) -> Block:
    """Where the model learned, chose and was tested, over a grey quicklook."""
    seen = colour.seen | (role < len(SPLITS))
    pixels = tinted(stretched(colour.bands, colour.seen), role)
    told = [f"{name} {percent(float((role == number).mean()))}" for number, name in enumerate(SPLITS)]
    alt = f"Places of the splits: {listed(told)} of the grid."
    panel = Panel("Where it learned and where it was tested", alt, photo(pixels, seen))
    return Block("", [panel], outline(role == SPLITS.index("test")), role.shape[1], role.shape[0])


def _photo(view: View) -> Panel:
    cut = view.window
    seen = view.colour.seen[cut]
    pixels = stretched(view.colour.bands[:, *cut], seen)
    title = "True colour" if view.colour.true else "First band"
    return Panel(title, f"{title} quicklook of the place, {_size(seen)}.", photo(pixels, seen))


def _size(array: BoolArray) -> str:
    return f"{array.shape[1]} by {array.shape[0]} cells"


def _shares(numbers: UInt8Array, classes: tuple[str, ...]) -> str:
    known = numbers[numbers != NO_LABEL]
    if not known.size:
        return "none here"
    counts = np.bincount(known, minlength=len(classes))
    return listed([f"{name} {percent(float(n / known.size))}" for name, n in zip(classes, counts, strict=False)])


def _confidence_words(shares: FloatArray) -> str:
    there = shares[np.isfinite(shares)]
    if not there.size:
        return "Highest probability: none here."
    low, middle, high = np.percentile(there, (5, 50, 95))
    return f"Highest probability: median {middle:.2f}, 90 % of the pixels between {low:.2f} and {high:.2f}."
