"""Numbers as people read them, and the verdict in plain words."""

from dataclasses import dataclass
from typing import Any, Literal

THIN_SPACE = "\u202f"
DASH, TIMES = "\u2013", " \u00d7 "
BETTER, WORSE, SLIGHTLY = "better than", "worse than", "slightly"
# A difference below one point in both measures is called slight.
LITTLE = 0.01


@dataclass(frozen=True)
class Verdict:
    """What the scores come to: the tone picks a colour and a mark, head and text say it."""

    tone: Literal["good", "mixed", "bad"]
    head: str
    text: str


def score(value: float | None) -> str:
    """Write a score between 0 and 1 with three digits; a dash where it is not defined."""
    return DASH if value is None else f"{value:.3f}"


def percent(share: float | None) -> str:
    """Write a share as a percentage with one digit behind the point; a dash where it is not defined."""
    return DASH if share is None else f"{100 * share:.1f}{THIN_SPACE}%"


def count(number: int) -> str:
    """Write a whole number, its thousands set apart."""
    return f"{number:,}".replace(",", THIN_SPACE)


def number(value: Any) -> str:
    """Write any setting: numbers with at most four digits that count, lists with commas."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: DASH}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(number, value)) or DASH
    return str(value)


def plural(amount: int, noun: str) -> str:
    """Count things: `1 map`, `2 maps`."""
    return f"{count(amount)} {noun}{'' if amount == 1 else 's'}"


def listed(words: list[str]) -> str:
    """Join words: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def counted(metrics: dict[str, Any]) -> str:
    """What the scores count: pixels or chips."""
    return "chip" if metrics.get("task") == "classification" else "pixel"


def tested(metrics: dict[str, Any]) -> str:
    """How many test pixels or chips the scores are of."""
    noun = counted(metrics)
    return plural(metrics[f"test_{noun}s"], f"test {noun}")


def verdict(metrics: dict[str, Any]) -> Verdict:
    """Compare the model with both baselines, on accuracy and mIoU as they are shown (three digits)."""
    model = metrics["model"]
    if model["accuracy"] is None:
        return Verdict(
            "mixed",
            "The model could not be scored.",
            f"No {counted(metrics)} of the test places has both label and map.",
        )
    rivals = {
        "the per-pixel baseline": metrics["pixel_baseline"],
        f"always answering “{metrics['majority']['class']}”": metrics["majority"],
    }
    found = {name: _compare(model, rival) for name, rival in rivals.items()}
    tone: Literal["good", "mixed", "bad"] = "mixed"
    if any(kind.endswith("worse than") and " but " not in kind for kind in found.values()):
        tone = "bad"
    elif all(kind in (BETTER, f"{SLIGHTLY} {BETTER}") for kind in found.values()):
        tone = "good"
    return Verdict(tone, _head(found), _text(metrics, rivals))


def _compare(model: dict[str, Any], rival: dict[str, Any]) -> str:
    """How the model stands against a rival, in words that lead up to the rival's name."""
    accuracy, miou = (_gain(model[measure], rival[measure]) for measure in ("accuracy", "miou"))
    much = "" if max(abs(accuracy), abs(miou)) >= LITTLE else f"{SLIGHTLY} "
    if accuracy == miou == 0:
        return "no better than"
    if min(accuracy, miou) >= 0:
        return much + BETTER
    if max(accuracy, miou) <= 0:
        return much + WORSE
    return (
        f"better in {'accuracy' if accuracy > 0 else 'mIoU'} but worse in {'mIoU' if accuracy > 0 else 'accuracy'} than"
    )


def _gain(mine: float | None, other: float | None) -> float:
    return 0.0 if mine is None or other is None else round(round(mine, 3) - round(other, 3), 3)


def _head(found: dict[str, str]) -> str:
    if set(found.values()) == {BETTER}:
        return "The model is better than both baselines."
    order = sorted(set(found.values()), key=lambda kind: ("worse" not in kind, kind == BETTER, kind))
    parts = [f"{kind} {' and '.join(name for name in found if found[name] == kind)}" for kind in order]
    opposed = any("worse" in kind for kind in order) and order[-1].endswith(BETTER)
    return f"The model is {(', but ' if opposed else ', and ').join(parts)}."


def _text(metrics: dict[str, Any], rivals: dict[str, dict[str, Any]]) -> str:
    model = metrics["model"]
    others = [f"{name} for {_right(rival)}" for name, rival in rivals.items()]
    said = f"On {tested(metrics)} in places it never saw, the model is right for {_right(model)}; {listed(others)}."
    return said + _saved(model["accuracy"], metrics["pixel_baseline"]["accuracy"])


def _right(scores: dict[str, Any]) -> str:
    return f"{percent(scores['accuracy'])} (mIoU {score(scores['miou'])})"


def _saved(mine: float, other: float | None) -> str:
    """How many errors of the per-pixel baseline the model saves or adds."""
    if other is None or round(other, 3) >= 1 or round(mine, 3) == round(other, 3):
        return ""
    ratio = (1 - mine) / (1 - other)
    if ratio > 2:
        return f" It makes {ratio:.1f} times as many errors as the per-pixel baseline."
    share = f"{100 * abs(ratio - 1):.0f}{THIN_SPACE}%"
    return f" It makes {share} {'more' if ratio > 1 else 'fewer'} errors than the per-pixel baseline."
