"""Histograms of one band over the dates as ridges: one hill a scene, early ones on top."""

from markupsafe import Markup

from eopipe.reporting.charts import nice_ticks
from eopipe.reporting.quality import BINS, Band, Look

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 360, 84, 10, 34, 40
ROW, TALL = 15, 2.4


def ridges(band: Band, looks: list[Look], marked: set[str]) -> Markup:
    """Draw the histograms of a band; scenes in `marked` stand out."""
    height = TOP + ROW * len(looks) + BOTTOM
    peak = max(float(band.shares.max()), 1e-9)
    every = -(-len(looks) // 30)
    hills = [
        _hill(band.shares[n].tolist(), TOP + ROW * (n + 1), peak, look, look.scene in marked, told=n % every == 0)
        for n, look in enumerate(looks)
    ]
    alt = f"Histograms of {band.name} for {len(looks)} scenes by date, from {band.low:.4g} to {band.high:.4g}."
    return Markup('<svg class="chart ridges" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg>').format(
        WIDTH, height, alt, _axis(band, height), Markup("").join(hills)
    )


def _axis(band: Band, height: int) -> Markup:
    span = WIDTH - LEFT - RIGHT
    inner = [tick for tick in nice_ticks(band.low, band.high, 4) if band.low <= tick <= band.high]
    at = [(round(LEFT + (tick - band.low) / (band.high - band.low) * span, 1), tick) for tick in inner]
    ticks = [
        Markup(
            '<line class="grid" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>'
            '<text x="{0}" y="{3}" text-anchor="middle">{4}</text>'
        ).format(x, TOP, height - BOTTOM + 4, height - BOTTOM + 20, f"{tick:g}")
        for x, tick in at
    ]
    title = Markup('<text class="axis" x="{}" y="14">{}</text>').format(LEFT, band.name)
    return Markup("").join([*ticks, title])


def _hill(shares: list[float], base: float, peak: float, look: Look, marked: bool, *, told: bool) -> Markup:
    step = (WIDTH - LEFT - RIGHT) / BINS
    points = [(LEFT + (n + 0.5) * step, base - share / peak * ROW * TALL) for n, share in enumerate(shares)]
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    path = f"M{LEFT} {base:g}L{line}L{WIDTH - RIGHT} {base:g}"
    words = look.date or look.scene[:10]
    label = Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(LEFT - 6, base, words)
    style = "two" if marked else "one"
    return Markup('<g class="{}"><title>{}</title><path d="{}"/>{}</g>').format(
        style, look.scene, path, label if told or marked else ""
    )
