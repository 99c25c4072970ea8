"""What `eopipe help TOPIC` prints: the beginning of a page or section of the docs, to the end of its first example."""

import re

PAGES = "https://github.com/eopipe/eopipe/blob/main/docs"
# The page of each topic, or a section of it, in the order in which users come to them.
TOPICS = {
    "labels": "own-area.md",
    "points": "own-area.md#points",
    "models": "recipes.md",
    "areas": "areas.md",
    "mapping": "mapping.md",
    "trials": "trials.md",
    "members": "trials.md#members",
    "ensembles": "trials.md#members",
    "chips": "chip-sets.md",
    "python": "python.md",
    "slurm": "clusters.md",
    "cwl": "cwl.md",
}


def text_of(topic: str) -> str:
    """The title, the first paragraphs and the first example of a topic, and where the rest is."""
    from eopipe.planning.project_settings import shipped

    file, _, section = TOPICS[topic].partition("#")
    page = re.sub(r"<!--.*?-->\n", "", shipped(f"docs/{file}").read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.search(rf"^#+ ((?i:{section}).*?(?:^```\w+\n.*?^```|\Z))", page, re.DOTALL | re.MULTILINE)
    assert text is not None
    # Links and fences are for a browser.
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)|^```\w*\n?", lambda match: match[1] or "", text[1], flags=re.MULTILINE)
    return f"{plain.strip()}\n\nmore: {PAGES}/{TOPICS[topic]}"
