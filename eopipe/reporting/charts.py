"""Charts of the page as inline SVG: curves over epochs, and histograms of one band over the dates."""

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from eopipe.reporting.figures import FAINT, ONE, PAPER, TWO, figure_style, new_figure, save_svg
from eopipe.reporting.quality import BandHistograms, SceneSummary

# In inches; the page scales charts to its columns.
CHART, RIDGES_WIDTH = (4.6, 2.8), 3.6
RIDGE, OVERLAP, MAX_LABELS = 0.15, 2.4, 30


@dataclass(frozen=True)
class Series:
    """One curve: its name, its colour, its points (x, y), and whether only the others are labelled with a value."""

    name: str
    color: str
    points: list[tuple[float, float]]
    is_background: bool = False


def line_chart(
    alt: str, titles: tuple[str, str], epochs: tuple[float, float], series: list[Series], *included: float
) -> Markup:
    """Curves over the epochs, with a legend of their last values; the y axis also reaches the values in `included`."""
    from matplotlib.ticker import MaxNLocator

    curves = [curve for curve in series if curve.points]
    if not curves:
        return Markup("")
    with figure_style(salt=alt):
        figure = new_figure(*CHART)
        figure.set_layout_engine("constrained")
        axes = figure.subplots()
        for curve in curves:
            x, y = zip(*curve.points, strict=True)
            label = curve.name if curve.is_background else f"{curve.name} {y[-1]:.3f}"
            width, alpha = (0.7, 0.5) if curve.is_background else (1.6, 1)
            (line,) = axes.plot(x, y, color=curve.color, linewidth=width, alpha=alpha, label=label, clip_on=False)
            line.set_gid(f"curve-{curve.name.split()[0].lower()}")
        first, last = epochs
        axes.set_xlim(first, max(last, first + 1))
        values = [*included, *(y for curve in curves for _, y in curve.points)]
        spread = (max(values) - min(values)) or 1.0
        margin = 0.03 * spread
        axes.set_ylim(min(values) - margin * (min(values) not in included), max(values) + margin)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set(xlabel=titles[0], ylabel=titles[1])
        axes.grid(axis="y", clip_on=False)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="best")
        return save_svg(figure, alt)


def ridge_chart(band: BandHistograms, scenes: list[SceneSummary], outliers: set[str]) -> Markup:
    """Histograms of a band by date, early ones on top, outliers in another colour.

    Of many scenes only some are labelled, and all outliers.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.ticker import MaxNLocator

    alt = f"Histograms of {band.name} for {len(scenes)} scenes by date, from {band.low:.4g} to {band.high:.4g}."
    count, bins = band.shares.shape
    heights = band.shares / max(float(band.shares.max()), 1e-9) * OVERLAP
    edges = np.linspace(band.low, band.high, bins + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    x = np.concatenate([edges[:1], centres, edges[-1:]])
    base = np.arange(count, 0, -1)
    outlines = [np.column_stack([x, [b, *(b + height), b]]) for b, height in zip(base, heights, strict=True)]
    colors = [TWO if scene.scene in outliers else ONE for scene in scenes]
    step = -(-count // MAX_LABELS)
    labelled = [n for n, scene in enumerate(scenes) if n % step == 0 or scene.scene in outliers]
    with figure_style(salt=alt):
        figure = new_figure(RIDGES_WIDTH, 0.75 + RIDGE * (count + OVERLAP))
        figure.set_layout_engine("constrained")
        axes = figure.subplots()
        histograms = PolyCollection(
            outlines, facecolors=colors, edgecolors=PAPER, linewidths=0.6, alpha=0.8, clip_on=False
        )
        axes.add_collection(histograms)
        axes.set(xlim=(band.low, band.high), ylim=(0.8, count + OVERLAP), xlabel=f"{band.name} (physical value)")
        axes.set_yticks(base[labelled], labels=[scenes[n].date or scenes[n].scene[:10] for n in labelled])
        for n, label in zip(labelled, axes.get_yticklabels(), strict=True):
            label.set_color(TWO if scenes[n].scene in outliers else FAINT)
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.grid(axis="x", clip_on=False)
        axes.set_axisbelow(True)
        axes.spines[["top", "left", "right"]].set_visible(False)
        return save_svg(figure, alt)
