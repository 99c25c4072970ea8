"""The page of a crate tells what its metadata tell."""

import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from synthetic_run import crowd

from eopipe.provenance.graph import METADATA
from eopipe.provenance.preview import MOST, PREVIEW, preview
from eopipe.publish import read_json

EVIL = "<script>alert(1)</script>"


def metadata(**root: Any) -> dict[str, Any]:
    """A crate of one job, as small as can be."""
    when = {"startTime": "2026-11-21T22:00:00+00:00", "endTime": "2026-11-21T22:00:07+00:00"}
    job = {"@id": "#job/train/a%20b", "description": EVIL, "error": "no luck", "result": {"@id": "javascript:alert(1)"}}
    told = {"name": EVIL, "description": "d", "datePublished": "2026", "hasPart": [{"@id": "m/"}, {"@id": "m/a b.tif"}]}
    return {
        "@graph": [
            {"@id": "./"} | told | root,
            {"@id": "#run", "description": "1 job"},
            {"@id": "#engine", "instrument": {"@id": "https://engine"}},
            {"@id": "https://engine", "name": "Engine", "softwareVersion": "engine 1"},
            {"@id": "javascript:alert(1)", "name": "made"},
            {"@id": "m/", "sha256": "0123456789abcdef", "contentSize": "5"},
            {"@id": "m/a b.tif"},
            job | when,
        ]
    }


def test_words_of_others_are_shown_and_never_run() -> None:
    page = preview(metadata())
    assert EVIL not in page
    assert EVIL in unescape(page)
    assert "javascript:" not in page


def test_a_job_that_failed_says_so_and_what_a_folder_holds_is_not_told_twice() -> None:
    page = preview(metadata())
    assert "train/a b: 2026-11-21T22:00:00+00:00, 7 s, failed" in page
    assert "<strong>no luck</strong>" in page
    assert re.findall(r'row"><a href="([^"]+)', page) == ["m/"]
    assert "0123456789ab" in page


def test_of_many_scenes_the_first_are_shown_and_every_link_leads_to_a_file(tmp_path: Path) -> None:
    crate = crowd(tmp_path / "run", MOST + 7).crate(tmp_path / "crate")
    page = (crate / PREVIEW).read_text()
    assert page.count("The metadata tell the other 7.") >= 2
    links = [unquote(unescape(link)) for link in re.findall(r'href="([^"]+)"', page)]
    assert {METADATA, "README.md"} <= set(links)
    assert all((crate / link).exists() for link in links)
    told = {entity["@id"]: entity for entity in read_json(crate / METADATA)["@graph"]}
    assert told[PREVIEW]["about"] == {"@id": "./"}
    assert unescape(page).count(told["#job/train"]["description"]) == 1
