"""The trials of a run on one page: a leaderboard with paired intervals, and the maps of the best side by side."""

from dataclasses import replace

from eopipe.evaluation.trials import PLACES, RankedTrials
from eopipe.reporting.compare_page import NOTE, panels_context, read_panels, score_table, size_text
from eopipe.reporting.leaderboard import Leaderboard
from eopipe.reporting.page import page_environment

TEMPLATE = "trials_page.html"
# The best trials whose scores and maps are side by side.
MAX_COMPARED = 4
# Cawley and Talbot 2010, JMLR 11:2079: what is optimised over is biased.
BIAS = (
    "The best of several scores is too high on average, since chance is a part of it; the score in the test places is "
    "not. The intervals are of one difference each, and not adjusted for the number of trials."
)


def render_trials(ranked: RankedTrials) -> str:
    """The page; every text from outside is escaped."""
    first, names = ranked.runs[0], [model.name for model in ranked.models[:MAX_COMPARED]]
    compared = replace(ranked.comparison, runs=ranked.comparison.runs[:MAX_COMPARED])
    panels = read_panels(ranked.runs[:MAX_COMPARED], names, PLACES)
    context = {
        "run": {"title": f"Trial {ranked.winner.name}, the best of {len(ranked.models)}"},
        "names": names,
        "caption": f"Scores on {size_text(ranked.comparison, first, PLACES)}",
        "leaderboard": Leaderboard(ranked.json_document(), first.task.name, first.unit),
        "scores": score_table(compared, names, first),
        "notes": [NOTE, BIAS],
    }
    return page_environment().get_template(TEMPLATE).render(context | panels_context(panels, names[0]))
