"""Options of labels that cannot go together; the config is checked by them before anything runs."""

from collections.abc import Mapping, Sequence


def conflicts(measure: str | None, resampling: str, makers: Mapping[str, Sequence[object]]) -> list[str]:
    """Sentences about a measure (None: classes), a resampling, and what makes classes (bins, codes, values)."""
    given = [name for name, value in makers.items() if value]
    wrong = []
    if measure is not None and not measure.strip():
        wrong.append("label.measure is empty; give the name of what is measured")
    if measure and given:
        wrong.append(f"label.measure keeps the numbers, and label.{given[0]} makes classes of them; give one")
    if measure and resampling == "mode":
        wrong.append("label.resampling mode is for classes; a measure needs nearest, bilinear or average")
    if not measure and resampling in ("bilinear", "average"):
        wrong.append(f"label.resampling {resampling} mixes class numbers; use nearest or mode, or give label.measure")
    return wrong
