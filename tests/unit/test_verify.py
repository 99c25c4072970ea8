"""`eopipe verify` finds all damage and nothing else, and rebuilds just what is damaged."""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders import noise
from loopback import Loopback
from remote_assets import fetch, put, tif
from scenery import Catalog, Completed, Run

from eopipe.errors import BadInputError
from eopipe.publish import MANIFEST, digest, publish
from eopipe.text_files import read_json, write_json
from eopipe.verify import scan


@pytest.fixture
def results(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Outputs of search, fetch and preprocess for three scenes, with their run records; paths are relative."""
    template = tmp_path_factory.getbasetemp() / "results_to_verify"
    if not template.exists():
        template.mkdir()
        monkeypatch.chdir(template)
        make_results(Catalog(template / "catalog"), run)
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Path("results")


def make_results(catalog: Catalog, run: Run) -> None:
    for number, name in enumerate(("a", "b", "c")):
        catalog.add(name, dict(zip(("red", "nir"), noise(2, 70, 90, seed=number), strict=True)))
    catalog.write()
    search(run).ends(0)
    for name in ("a", "b", "c"):
        item, scene = f"results/items/{name}.geojson", f"results/scenes/{name}"
        assert run("fetch", "--item", item, "--catalog", "catalog", "--scene", scene).code == 0
        preprocess(run, name, f"tiles/{name}.zarr", bands=("red", "nir")).ends(0)


def search(run: Run, grid: str = "results/grid.json", folder: str = "results") -> Completed:
    """Search both bands into a folder of results."""
    words = ("search", "--catalog", "catalog", "--assets", "red", "nir", "--items", f"{folder}/items")
    return run(*words, "--grid", grid, "--selection", f"{folder}/selection.json")


def preprocess(run: Run, scene: str, tiles: str, grid: str = "grid.json", bands: Sequence[str] = ("red",)) -> Completed:
    """Make tiles of a scene of the results."""
    places = ("--scene", f"results/scenes/{scene}", "--grid", f"results/{grid}", "--tiles", f"results/{tiles}")
    return run("preprocess", *places, "--bands", *bands, "--mask", "none", "--chunk", 16, "--shard", 32)


def broken(root: Path) -> dict[str, str]:
    """The damage that verify reports, by path below the root."""
    damaged = {output.path.relative_to(root).as_posix(): damage for output, damage in scan(root, 2).damaged.items()}
    return {name: "; ".join(entry.message for entry in damage) for name, damage in damaged.items()}


def damage_file(path: Path, kind: str, dice: random.Random) -> None:
    """Remove, cut, empty or flip one bit of a file, or take its last byte, which may be the end of a line."""
    content = bytearray(path.read_bytes())
    if kind == "flip":
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    end = {"cut": dice.randrange(1, len(content)), "empty": 0, "shorten": -1}.get(kind)
    path.unlink() if kind == "remove" else path.write_bytes(content[:end])


DAMAGES = ("remove", "cut", "empty", "flip")


@pytest.mark.exhaustive
def test_200_injected_damages_are_all_found_each_in_its_place_and_there_is_no_false_alarm(results: Path) -> None:
    dice = random.Random(3)
    assert broken(results) == {}
    files = sorted(p for p in results.rglob("*") if p.is_file() and not p.name.endswith(".run.json"))
    contents = {path: path.read_bytes() for path in files}
    # The published folder that each file belongs to; itself if it belongs to none.
    home = {path: next((folder for folder in path.parents if folder / MANIFEST in files), path) for path in files}
    for number in range(200):
        if number % 5 == 4:
            first, second = dice.sample(files, 2)
            while contents[first] == contents[second]:
                first, second = dice.sample(files, 2)
            damaged_files = [first, second]
            first.write_bytes(contents[second])
            second.write_bytes(contents[first])
        else:
            damaged_files = [dice.choice([path for path in files if len(contents[path]) > 1])]
            damage_file(damaged_files[0], DAMAGES[number % 5], dice)
        messages, homes = broken(results), {home[path].relative_to(results).as_posix() for path in damaged_files}
        assert set(messages) == homes, (number, damaged_files)
        for path in damaged_files:
            # Without its manifest nothing is known of a folder's other files.
            if home[path] / MANIFEST not in damaged_files and home[path] != path:
                assert path.relative_to(home[path]).as_posix() in messages[home[path].relative_to(results).as_posix()]
            path.write_bytes(contents[path])
    assert broken(results) == {}


def test_what_is_added_is_found_and_moved_out_on_repair_never_removed(results: Path, run: Run) -> None:
    store = results / "tiles/a.zarr"
    (store / "image/notes").mkdir()
    (store / "image/notes/mine.txt").write_text("mine")
    (store / "gone").symlink_to("nowhere")
    message = broken(results)["tiles/a.zarr"]
    added = ("image/notes/mine.txt", "gone")
    assert [name for name in added if f"{name} does not belong there" not in message] == []
    assert run("verify", "results", "--repair").code == 0
    assert (results / "tiles/a.zarr.extra/image/notes/mine.txt").read_text() == "mine"
    assert broken(results) == {}


def test_folders_that_were_swapped_or_are_gone_are_found_by_their_records(results: Path) -> None:
    a, b = results / "tiles/a.zarr", results / "tiles/b.zarr"
    a.rename(results / "c")
    b.rename(a)
    (results / "c").rename(b)
    replaced = {name for name, text in broken(results).items() if "was the folder replaced?" in text}
    assert replaced == {"tiles/a.zarr", "tiles/b.zarr"}
    shutil.rmtree(results / "scenes/c")
    assert broken(results)["scenes/c"] == "it is missing"


def test_a_second_output_that_is_gone_is_found_and_one_put_elsewhere_is_not_missed(results: Path, run: Run) -> None:
    (results / "grid.json").unlink()
    assert broken(results) == {"grid.json": "it is missing"}
    search(run, "elsewhere/grid.json").ends(0)
    # Its record names the new one, but what was made of the old one is there.
    assert broken(results) == {"grid.json": "it is missing, and results/tiles/a.zarr was made of it"}


def test_an_input_that_is_gone_with_its_record_is_found_wherever_the_command_is_typed_and_in_a_copy(
    results: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(results / "scenes/b")
    (results / "scenes/b.run.json").unlink()
    shutil.copytree(results, "backup")
    shutil.copytree(results / "tiles", "part/tiles")
    for name in ("results", "backup"):
        message = f"{name}/scenes/b is damaged: it is missing, and {name}/tiles/b.zarr was made of it"
        run("verify", name).ends(4, message)
    assert run("verify", "part").code == 0
    monkeypatch.chdir(results)
    run("verify", ".").ends(4, "scenes/b is damaged: it is missing, and tiles/b.zarr was made of it")
    # Of a folder that was moved alone nobody knows where its inputs are.
    assert run("verify", "tiles").code == 0


def test_intact_results_are_one_line(results: Path, run: Run) -> None:
    for name in ("logs/fetch/a.log", "benchmarks/fetch/a.tsv"):
        (results / name).parent.mkdir(parents=True)
        (results / name).write_text("1\n")
    completed = run("verify", "results")
    assert (completed.code, len(completed.stdout.splitlines()), completed.stderr) == (0, 1, "")


def test_a_folder_without_manifest_is_found_also_when_it_is_what_was_asked_for(results: Path, run: Run) -> None:
    (results / "tiles/a.zarr" / MANIFEST).unlink()
    assert "has no manifest.json" in broken(results)["tiles/a.zarr"]
    run("verify", results / "tiles/a.zarr").ends(4, "a.zarr is damaged: it has no manifest.json")
    assert run("verify", results / "tiles/b.zarr").code == 0
    assert run("verify", results / "grid.json").code == 3, "its record is beside the items"
    assert run("verify", "nowhere").code == 3
    (results / "empty").mkdir()
    with pytest.raises(BadInputError, match="empty is not an output of eopipe"):
        scan(results / "empty", 1)


def test_the_draft_of_a_killed_writer_is_named_and_no_draft_is_damage(results: Path, run: Run) -> None:
    (results / "tiles/.d.zarr.tmp-0123456789ab-999999999-0123abcd").mkdir()
    with publish(results / "tiles/e.zarr", folder=True) as draft:
        (draft / "image").write_text("half")
        (draft / MANIFEST).write_text("{")
        run("verify", results).ends(
            0, ".d.zarr.tmp-0123456789ab-999999999-0123abcd", "what a writer that was killed had"
        )
        assert broken(results) == {}
        (draft / MANIFEST).unlink()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"arguments": [], "outputs": [{"name": "../a"}]}'])
def test_a_record_that_cannot_be_read_is_damage_and_the_manifest_is_still_compared(results: Path, content: str) -> None:
    (results / "tiles/a.zarr.run.json").write_text(content)
    assert set(broken(results)) == {"tiles/a.zarr.run.json"}
    (results / "tiles/a.zarr/image/zarr.json").unlink()
    assert broken(results)["tiles/a.zarr"] == "image/zarr.json is missing"


def test_what_has_no_record_is_never_counted_as_intact_and_files_beside_are_named(results: Path, run: Run) -> None:
    before = int(run("verify", "results").stdout.split()[0])
    (results / "items.run.json").unlink()
    (results / "tiles/a.zarr.run.json").unlink()
    (results / "notes.txt").write_text("mine")
    completed = run("verify", "results").ends(0)
    # The record of the search named three outputs; of the frozen items the manifest is left.
    assert completed.stdout.startswith(f"{before - 2} of {before - 2} files and folders are intact\n")
    sentences = completed.stdout.splitlines()
    assert sentences[1].endswith("compared with their own manifest only: results/items, results/tiles/a.zarr")
    assert sentences[2].endswith("names them: results/grid.json, results/notes.txt, results/selection.json")


@pytest.fixture
def with_crate(results: Path, run: Run) -> Path:
    """The results with a crate among them, which has grid and selection."""
    Path("Snakefile").write_text("rule all:\n    input: []\n")
    records, items = sorted(results.rglob("*.run.json")), sorted(results.glob("items/*.geojson"))
    payload = (results / "grid.json", results / "selection.json")
    arguments = ("--records", *records, "--payload", *payload, "--scenes", *items)
    run("crate", *arguments, "--workflow", "Snakefile", "--crate", results / "crate").ends(0)
    assert run("verify", "results").code == 0
    return results


def test_a_gone_record_of_a_crate_is_damage_and_its_files_are_still_compared(with_crate: Path, run: Run) -> None:
    (with_crate / "items.run.json").unlink()
    assert broken(with_crate) == {"items.run.json": "it is missing, and results/crate was made of it"}
    assert "not checked" not in run("verify", "results").stdout, "the record of the crate names grid and selection"
    change(with_crate / "grid.json")
    assert broken(with_crate)["grid.json"].endswith("differs from the one that results/crate was made of")
    for name in ("grid.json", "items.run.json"):
        (with_crate / name).unlink(missing_ok=True)
    assert set(broken(with_crate)) == {"grid.json", "items.run.json"}


def test_a_file_that_was_changed_together_with_its_record_is_named(with_crate: Path, run: Run) -> None:
    change(with_crate / "grid.json")
    record = read_json(with_crate / "items.run.json")
    next(row for row in record["outputs"] if row["port"] == "grid")["sha256"] = digest(with_crate / "grid.json")
    write_json(with_crate / "items.run.json", record)
    assert broken(with_crate)["items.run.json"].startswith("it is not the run record that was written")
    # As one of an earlier version, which has no digest of its own.
    del record["record_sha256"]
    write_json(with_crate / "items.run.json", record)
    completed = run("verify", "results")
    assert completed.stderr.startswith("warning: results/items.run.json: not the record that the crate was made of")
    assert completed.code == 0


def change(path: Path) -> None:
    """Write another text; not into the file, which is a hard link of the one in the crate."""
    text = path.read_text().replace("0", "1", 1)
    path.unlink()
    path.write_text(text)


def test_files_of_one_name_in_several_folders_are_compared_with_their_own_records(with_crate: Path, run: Run) -> None:
    # As parts, trials, members and folds have them.
    preprocess(run, "a", "trials/1/a.zarr").ends(0)
    search(run, "results/trials/1/grid.json", "results/trials/1").ends(0)
    completed = run("verify", "results")
    assert (completed.code, completed.stderr) == (0, "")


def test_a_run_that_was_changed_and_is_half_done_again_is_no_damage(with_crate: Path, run: Run) -> None:
    preprocess(run, "a", "tiles/a.zarr").ends(0)
    completed = run("verify", "results").ends(0)
    assert completed.stderr.startswith("warning: results/tiles/a.zarr.run.json: not the record that the crate was made")
    # The record of a job that failed, or that runs, says nothing of what is there.
    assert preprocess(run, "a", "tiles/d.zarr", "gone.json").code != 0
    assert run("verify", "results").code == 0


def test_a_crate_alone_has_no_record_and_one_beside_its_results_has(with_crate: Path, run: Run, tmp_path: Path) -> None:
    (with_crate / "crate.run.json").unlink()
    assert broken(with_crate) == {"crate.run.json": "it is missing, its crate is not"}
    assert run("verify", "results/crate").code == 0
    shutil.move(with_crate / "crate", tmp_path / "crate")
    assert broken(with_crate) == {}


@pytest.mark.parametrize("kind", ["remove", "cut", "flip", "shorten"])
def test_damage_of_every_file_and_every_record_is_found(with_crate: Path, kind: str) -> None:
    dice = random.Random(5)
    assert broken(with_crate) == {}
    for path in sorted(path for path in with_crate.rglob("*") if path.is_file()):
        # Moved, not written into: files of the crate are hard links.
        path.rename("kept")
        shutil.copyfile("kept", path)
        damage_file(path, kind, dice)
        assert broken(with_crate), path
        Path("kept").replace(path)
    assert broken(with_crate) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["ro-crate-metadata.json", "manifest.json"])
def test_a_broken_crate_is_one_more_damage_that_ends_neither_survey_nor_repair(
    with_crate: Path, run: Run, name: str
) -> None:
    whole = digest(with_crate / "tiles/b.zarr")
    (with_crate / "crate" / name).write_text("{")
    damage_file(with_crate / "tiles/b.zarr/image/c/0/1/1", "flip", random.Random(0))
    completed = run("verify", "results").ends(4)
    assert completed.stderr.count("is damaged:") == 2
    assert set(broken(with_crate)) == {"crate", "tiles/b.zarr"}
    run("verify", "results", "--repair").ends(0)
    assert digest(with_crate / "tiles/b.zarr") == whole
    assert broken(with_crate) == {}


@pytest.fixture
def damaged_results(results: Path) -> Path:
    """Results of which a scene and two stores are damaged."""
    damage_file(results / "tiles/a.zarr/image/c/0/1/1", "flip", random.Random(0))
    damage_file(results / "tiles/b.zarr/valid/c/2/2", "cut", random.Random(0))
    damage_file(results / "scenes/a/red.tif", "remove", random.Random(0))
    return results


def test_verify_prints_the_command_that_rebuilds_each_and_repair_rebuilds_just_them_with_the_same_bytes(
    damaged_results: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path / "elsewhere")
        run("verify", "../results", "--repair").ends(3, "start this where the run was started")
        assert list(Path().iterdir()) == []
    lines = run("verify", "results").ends(4).stderr.splitlines()
    assert lines[0].startswith("error: results/scenes/a is damaged: red.tif is missing")
    assert lines[1].startswith("  eopipe fetch --item results/items/a.geojson")
    assert "image/c/0/1/1 has other content than the manifest says" in lines[2]
    assert "valid/c/2/2 has" in lines[4]
    records = {path: path.stat().st_mtime_ns for path in damaged_results.rglob("*.run.json")}
    manifests = {path: path.read_bytes() for path in damaged_results.rglob(MANIFEST)}
    assert run("verify", "results", "--repair").code == 0
    assert broken(damaged_results) == {}
    assert {path: path.read_bytes() for path in damaged_results.rglob(MANIFEST)} == manifests
    again = {path.name for path, then in records.items() if path.stat().st_mtime_ns != then}
    assert again == {"a.run.json", "a.zarr.run.json", "b.zarr.run.json"}


def test_what_cannot_be_rebuilt_is_reported_and_the_rest_is_repaired(damaged_results: Path, run: Run) -> None:
    shutil.rmtree(Path() / "catalog")
    (damaged_results / "tiles/b.zarr.run.json").unlink()
    before = digest(damaged_results / "tiles/c.zarr")
    damage_file(damaged_results / "tiles/c.zarr/image/c/0/1/1", "flip", random.Random(0))
    rebuilt = run("verify", "results", "--repair")
    rebuilt.ends(4, "results/scenes/a: it could not be rebuilt: eopipe fetch exited with code 3")
    rebuilt.ends(4, "results/tiles/b.zarr: there is no run record")
    assert set(broken(damaged_results)) == {"scenes/a", "tiles/a.zarr", "tiles/b.zarr"}, "a needs its scene"
    assert digest(damaged_results / "tiles/c.zarr") == before


def test_a_scene_from_a_private_host_is_rebuilt_with_permission(
    tmp_path: Path, run: Run, web: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fetch(run, Path(), put(web, {"red": tif(4_000)})).code == 0
    before = digest(Path("scene"))
    damage_file(Path("scene/red.tif"), "flip", random.Random(0))
    web.reset()
    host = web.url.removeprefix("http://")
    run("verify", "scene", "--repair").ends(8, "its run record names hosts", f"add --private-hosts {host}")
    assert web.received == []
    assert run("verify", "scene", "--repair", "--private-hosts", host).code == 0
    assert digest(Path("scene")) == before
    assert broken(Path("scene")) == {}
