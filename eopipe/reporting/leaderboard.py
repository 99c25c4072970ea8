"""The trials of a training as rows and sentences, from their document: for their page, report and model card."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from eopipe.evaluation.intervals import LEVEL
from eopipe.evaluation.paired import RunScores
from eopipe.reporting.scores import measures_of
from eopipe.reporting.wording import (
    DASH,
    EQUAL,
    THIN_SPACE,
    format_count,
    format_difference,
    format_gain,
    format_interval,
    format_setting,
    plural,
    score_text,
)
from eopipe.tasks import HAVE_UNIT, LOWER_IS_BETTER


def difference_text(run: RunScores, key: str, unit: str) -> str:
    """A difference with its interval; runs are not significant where that contains 0."""
    value, ends, unit = (run.differences or {}).get(key, np.nan), run.paired.get(key), unit if key in HAVE_UNIT else ""
    if not np.isfinite(value):
        return DASH
    text = format_gain(value, unit)
    if not ends:
        return f"{text}, no interval: too few independent places"
    if (interval := format_difference(ends, unit)) == EQUAL:
        return f"{text}, {EQUAL}"
    return f"{text} ({interval}){'' if run.is_significant(key) else ', not significant'}"


@dataclass(frozen=True)
class Leaderboard:
    """The document of the trials of a run, with the task and the unit of its values."""

    document: dict[str, Any]
    task: str
    unit: str = ""

    @property
    def title(self) -> str:
        """The score that ranked the trials."""
        return dict[str, str](measures_of(self.task))[self.document["score"]]

    @property
    def heads(self) -> tuple[str, ...]:
        percent = f"{100 * LEVEL:.0f}{THIN_SPACE}%"
        scores = f"{self.title} ({percent})", f"Difference to the best ({percent})"
        # One column for all settings, of which there may be any number.
        return ("Trial", *scores, "Settings that differ", "Steps", "Weights")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Rank and name, score, difference to the best, settings that differ, and size of each trial, as text."""
        key = self.document["score"]
        unit, rows = self.unit if key in HAVE_UNIT else "", list[tuple[str, ...]]()
        for rank, row in enumerate(self.document["trials"], 1):
            run = RunScores.of_document(row)
            ends = format_interval(run.intervals.get(key), unit)
            # Values without a unit have three digits here, since the page of a run is compared by its digest.
            score = score_text(run.scores[key], key if unit else "", unit) + (f" ({ends})" if ends else "")
            difference = DASH if run.differences is None else difference_text(run, key, unit)
            settings = "; ".join(f"{name} {format_setting(value)}" for name, value in row["settings"].items()) or DASH
            texts = score, difference, settings, _steps_text(row), format_count(row["weights"])
            rows.append((f"{rank}. {row['name']}", *texts))
        return rows

    @property
    def sentences(self) -> list[str]:
        """How the best was chosen, and how many trials may be as good."""
        end = "lowest" if self.document["score"] in LOWER_IS_BETTER else "highest"
        ended, count = self._whole and f" of those{self._whole}", len(self.document["trials"])
        return [
            f"Trial {self.document['chosen']} of {count} was chosen by the validation places alone, with the {end} "
            f"{self.title}{ended}. No other trial was scored in the test places.",
            *self._stopped_summary(),
            self._difference_summary(),
        ]

    @property
    def _stopped(self) -> list[dict[str, Any]]:
        """The trials that were stopped at a rung; documents of older versions have none."""
        return [row for row in self.document["trials"] if row.get("stopped")]

    @property
    def _whole(self) -> str:
        """What distinguishes the trials that were trained to their end, where some were not."""
        return " with a whole training" * bool(self._stopped)

    def _stopped_summary(self) -> list[str]:
        if not (count := len(self._stopped)):
            return []
        verb, end = ("was", "its") if count == 1 else ("were", "their")
        return [
            f"{plural(count, 'trial')} {verb} stopped before {end} end, since others had better validation scores at "
            "the same share of their steps; such trials are listed last."
        ]

    def _difference_summary(self) -> str:
        key = self.document["score"]
        others = [row for row in self.document["trials"][1:] if not row.get("stopped")]
        significant = [(row["significant"] or {}).get(key) for row in others]
        if not others:
            return f"It is the only trial{self._whole}."
        few, unknown = significant.count(False), significant.count(None)
        if unknown == len(others):
            return (
                "Whether the other trials are significantly different from it is unknown: too few validation places "
                "are independent of each other for an interval."
            )
        verb = "is" if few == 1 else "are"
        sentence = (
            f"{few} of {plural(len(others), 'other trial')}{self._whole} {verb} not significantly different from it: "
            "the paired interval of the difference contains 0."
        )
        if equal := [(row["intervals_of_differences"] or {}).get(key) for row in others].count([0, 0]):
            sentence += f" {equal} of them {'is' if equal == 1 else 'are'} {EQUAL}."
        if unknown:
            sentence += f" For {unknown} of them the difference has no interval: too few places are independent."
        return sentence


def _steps_text(row: dict[str, Any]) -> str:
    """The steps of a trial, for a stopped one with the steps of its whole training."""
    if row["steps"] is None:
        return DASH
    steps, end = format_count(row["steps"]), row.get("all_steps")
    if not row.get("stopped"):
        return steps
    return f"{steps} of {format_count(end)}, stopped" if end else f"{steps}, stopped"
