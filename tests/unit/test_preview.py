"""The preview page of a crate shows what its metadata say."""

import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from synthetic_run import synthetic_run

from eopipe.provenance.crate import LISTED, PREVIEW, preview
from eopipe.provenance.graph import METADATA
from eopipe.text_files import read_json

EVIL = "<script>alert(1)</script>"


def metadata(**root: Any) -> dict[str, Any]:
    """The smallest metadata of a crate with one job."""
    times = {"startTime": "2026-11-21T22:00:00+00:00", "endTime": "2026-11-21T22:00:07+00:00"}
    job = {"@id": "#job/train/a%20b", "description": EVIL, "error": "no luck", "result": {"@id": "javascript:alert(1)"}}
    properties = {
        "name": EVIL,
        "description": "d",
        "datePublished": "2026",
        "hasPart": [{"@id": "m/"}, {"@id": "m/a b.tif"}],
    }
    return {
        "@graph": [
            {"@id": "./"} | properties | root,
            {"@id": "#run", "description": "1 job"},
            {"@id": "#engine", "instrument": {"@id": "https://engine"}},
            {"@id": "https://engine", "name": "Engine", "softwareVersion": "engine 1"},
            {"@id": "javascript:alert(1)", "name": "output"},
            {"@id": "m/", "sha256": "0123456789abcdef", "contentSize": "5"},
            {"@id": "m/a b.tif"},
            job | times,
        ]
    }


def test_text_of_the_metadata_is_shown_and_never_executed() -> None:
    page = preview(metadata())
    assert EVIL not in page
    assert EVIL in unescape(page)
    assert "javascript:" not in page


def test_a_failed_job_is_marked_and_the_files_of_a_folder_are_not_listed_twice() -> None:
    page = preview(metadata())
    assert "train/a b: 2026-11-21T22:00:00+00:00, 7 s, failed" in page
    assert "<strong>no luck</strong>" in page
    assert re.findall(r'row"><a href="([^"]+)', page) == ["m/"]
    assert "0123456789ab" in page


def test_of_many_scenes_the_first_are_listed_and_every_link_leads_to_a_file(tmp_path: Path) -> None:
    crate = synthetic_run(tmp_path / "run", LISTED + 7).crate(tmp_path / "crate")
    page = (crate / PREVIEW).read_text()
    assert page.count("and 7 more, listed in the metadata") >= 2
    links = [unquote(unescape(link)) for link in re.findall(r'href="([^"]+)"', page)]
    assert {METADATA, "README.md"} <= set(links)
    assert all((crate / link).exists() for link in links)
    graph = {entity["@id"]: entity for entity in read_json(crate / METADATA)["@graph"]}
    assert graph[PREVIEW]["about"] == {"@id": "./"}
    assert unescape(page).count(graph["#job/train"]["description"]) == 1
