"""When scenes were taken, and how cloudy they are."""

from datetime import date, timedelta
from typing import TYPE_CHECKING

from eopipe.chips.splits import SPLITS
from eopipe.planning.chip_forecast import Chips
from eopipe.planning.outline import Row
from eopipe.reporting.ink import FAINT, INK, LINE, text
from eopipe.reporting.pictures import ROLES

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

MARKS = 6
COLOR = "#4d7386"
Box = tuple[int, int, int, int]


def timeline(pen: "ImageDraw", scenes: list[Row], chips: Chips, box: Box) -> None:
    """One stick a scene over its day, as high as its cloud cover; scenes that tell no date have none."""
    dated = [(date.fromisoformat(row.day), row) for row in scenes if row.day]
    left, top, right, bottom = box
    text(pen, (left, top - 44), "Cloud cover of the scenes by date", 19)
    left += 60
    for share in (0, 50, 100):
        y = bottom - (bottom - top) * share / 100
        pen.line((left, y, right, y), fill=LINE, width=1)
        text(pen, (left - 10, y), f"{share} %", 15, FAINT, "rm")
    if not dated:
        return
    first, last = dated[0][0], dated[-1][0]
    days = max(1, (last - first).days)

    def place(day: date) -> float:
        return left + 20 + (right - left - 40) * (day - first).days / days

    for n in range(MARKS if days >= MARKS else days + 1):
        day = first + timedelta(days=round(n * days / max(1, min(MARKS, days + 1) - 1)))
        pen.line((place(day), bottom, place(day), bottom + 6), fill=FAINT)
        text(pen, (place(day), bottom + 12), day.isoformat(), 15, FAINT, "ma")
    for day, row in dated:
        x, y = place(day), bottom - (bottom - top) * (row.cloud or 0) / 100
        color = COLOR if chips.plan.by_place else ROLES[SPLITS.index(chips.role_of(row.name))]
        pen.line((x, y, x, bottom), fill=color, width=3)
        # A hollow end says that the cloud cover is not known.
        pen.ellipse((x - 5, y - 5, x + 5, y + 5), fill=color if row.cloud is not None else None, outline=color or INK)
