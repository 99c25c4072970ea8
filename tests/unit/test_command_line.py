"""The command line itself: help, misspelt options, tab completion, the form of log lines."""

import io
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scenery import Run

from eopipe import cli
from eopipe.arguments import expand_lists, parse
from eopipe.config import validate
from eopipe.contract import STAGES, Input, Output, stage
from eopipe.run.help_texts import TOPICS
from eopipe.run.locate import find_config, project_folder
from eopipe.telemetry.progress import LineFormatter

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("train", "--archtecture", "x"), "there is no option --archtecture (did you mean --architecture?)"),
        (("fetch", "--itme=a", "--zzz"), "there is no option --itme (did you mean --item?), --zzz"),
        (("completion", "--bash"), "there is no option --bash"),
    ],
)
def test_a_misspelt_option_is_named_before_missing_ones(run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    completed = run(*arguments)
    assert completed.code == 2
    assert completed.stderr.startswith(f"error: {sentence} (see eopipe {arguments[0]} --help)")


def test_no_input_of_a_list_that_is_given_twice_is_lost_and_an_option_replaces_the_one_before() -> None:
    required = ["--chips", "c", "--statistics", "s", "--model", "m", "--augment", "haze"]
    values = parse(
        stage("train"), ["--tiles", "a", "b", "--labels", "l", *required, "--tiles", "c", "--augment", "none"]
    )
    assert values["tiles"] == (Path("a"), Path("b"), Path("c"))
    assert values["augment"] == ("none",)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("nowhere.txt", None, "--tiles: the list file nowhere.txt cannot be read: No such file or directory"),
        ("empty.txt", "\n\n", "the following arguments are required: --tiles"),
        ("broken.json", "[", "--tiles: the list file broken.json is not a list of paths"),
        ("deep.json", "[" * 100_000, "--tiles: the list file deep.json is not a list of paths"),
        ("object.json", '{"tiles": 1}', "--tiles: the list file object.json is not a list of paths"),
        ("numbers.json", "[1, 2]", "--tiles: the list file numbers.json is not a list of paths"),
        ("literal.json", '[{"class": "File", "contents": "x"}]', "--tiles: the list file literal.json is not a list"),
    ],
)
def test_a_list_file_without_paths_is_refused_by_the_name_of_its_option(
    run: Run, name: str, text: str | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path(name).write_text(text)
    completed = run("composite", "--tiles", f"@{name}", "--composite", "out.zarr")
    assert completed.code == 2
    assert sentence in completed.stderr


def test_only_lists_of_paths_are_read_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiles.txt").write_text("a b.zarr\n\nc.zarr\n")
    command = ("composite", "--tiles", "d.zarr", "@tiles.txt", "--composite", "@out.zarr", "--parts", "@tiles.txt")
    assert expand_lists(stage("composite"), command[1:]) == [
        *("--tiles", "d.zarr", "a b.zarr", "c.zarr", "--composite", "@out.zarr", "--parts", "@tiles.txt")
    ]
    assert expand_lists(stage("composite"), ("--tiles", "./@tiles.txt")) == ["--tiles", "./@tiles.txt"]
    Path("none.json").write_text("[]")
    assert expand_lists(stage("evaluate"), ("--probabilities", "@none.json", "--seed", "1")) == ["--seed", "1"]


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for arguments in (["help"], ["--help"], []):
        assert cli.main(arguments) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert cli.main(["help", "run"]) == 0
    assert capsys.readouterr().out.startswith("usage: eopipe run ")
    for name in ("train", "plan"):
        with pytest.raises(SystemExit):
            cli.main(["help", name])
        assert capsys.readouterr().out.startswith(f"usage: eopipe {name} ")


def test_help_begins_with_what_users_type_first_and_ends_with_stages(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help"]) == 0
    text = capsys.readouterr().out
    places = [text.index(f"\n  {name} ") for name in ("init", "check", "plan", "run", "compare", "profile", *STAGES)]
    assert places == sorted(places)
    assert all(topic in text.splitlines()[-1] for topic in TOPICS)


def test_a_setting_is_found_by_the_words_that_describe_it() -> None:
    config = {"search": {"catalog": "catalog"}, "label": {"source": "labels.gpkg"}, "train": {"early_stopping": 3}}
    assert validate(config)[1] == ["train has no setting early_stopping; did you mean patience?"]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_is_the_beginning_of_its_page_with_an_example(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", topic]) == 0
    text = capsys.readouterr().out
    file, _, section = TOPICS[topic].partition("#")
    page = (ROOT / "docs" / file).read_text()
    title = re.search(rf"^#+ ({section}.*)", page, re.MULTILINE | re.IGNORECASE)
    assert title is not None
    assert text.startswith(f"{title[1]}\n")
    example = re.compile(r"^```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE).search(page, title.end())
    assert example is not None
    assert example[1] in text
    assert text.rstrip().endswith(f"docs/{TOPICS[topic]}")
    assert f'"docs/{file}"' in (ROOT / "pyproject.toml").read_text(), "a wheel has it too"
    assert not re.search(r"```|<!--|\]\(", text)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["trials"], "there is no command trials; see eopipe help trials"),
        (["ensemble"], "there is no command ensemble; did you mean eopipe help ensembles?"),
        (["help", "member"], "there is no command member; did you mean eopipe help members?"),
        (["trian"], "there is no command trian; did you mean train?"),
        (["help", "trian"], "there is no command trian; did you mean train?"),
        (["command", "trian"], "there is no stage trian; did you mean train?"),
    ],
)
def test_a_word_that_is_no_command_has_a_hint(words: list[str], hint: str, run: Run) -> None:
    done = run(*words)
    assert (done.code, done.stderr) == (2, f"error: {hint}\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["eopipe", "pre"], ["predict", "preprocess"]),
        (["eopipe", "train", "--arch"], ["--architecture"]),
        (["eopipe", "preprocess", "--resampling", "bil"], ["bilinear"]),
        (["eopipe", "command", "exp"], ["export"]),
        (["eopipe", "completion", "z"], ["zsh"]),
        (["eopipe", "train", "no-option"], []),
    ],
)
def test_bash_completes_commands_options_and_choices(
    capsys: pytest.CaptureFixture[str], words: list[str], expected: list[str]
) -> None:
    assert cli.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    line = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _eopipe; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", f"{script}\n{line}"], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == expected


def test_every_shell_completes_every_stage_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert cli.main(["completion", shell]) == 0
        text = capsys.readouterr().out
        for name in STAGES:
            for port in (port for port in stage(name).ports if not port.positional):
                flag = f"-l {port.flag[2:]} " if shell == "fish" else port.flag
                assert flag in text, (shell, name)
        if program := shutil.which(shell):
            subprocess.run([program, "-n", "-c", text], check=True)


def test_a_log_line_has_time_and_level_before_its_message() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter())
    handler.handle(logging.makeLogRecord({"msg": "event=word size=%d", "args": (3,), "levelname": "WARNING"}))
    assert re.fullmatch(r"time=\d{4}(-\d\d){2}T\d\d:\d\d:\d\dZ level=warning event=word size=3\n", stream.getvalue())


@pytest.mark.parametrize(
    ("config", "project"),
    [
        ("config.yaml", "."),
        ("my-area/config.yaml", "my-area"),
        ("my-area/other.yaml", "my-area"),
        ("config/config.yaml", "."),
        ("config/examples/dem.yaml", "."),
        ("my-area/config/config.yaml", "my-area"),
        ("config/a/b/config.yaml", "config/a/b"),
    ],
)
def test_the_project_of_a_config_is_its_folder_or_the_one_above_config(
    config: str, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert project_folder(Path(config)) == tmp_path / project
    assert project_folder(tmp_path / config) == tmp_path / project


def test_the_config_of_a_folder_is_that_of_a_project_before_that_of_a_checkout(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").touch()
    assert find_config(tmp_path) == tmp_path / "config/config.yaml"
    (tmp_path / "config.yaml").touch()
    assert find_config(tmp_path) == tmp_path / "config.yaml"


# Stands for the function of a stage: prints the variables that a child process gets, and the libraries that are loaded.
SHOW_LIBRARIES = """
import os, subprocess, sys
from dataclasses import replace
from eopipe import cli
from eopipe.contract import stage

def show(**values):
    subprocess.run(["sh", "-c", "echo ${OMP_WAIT_POLICY-unset} ${OMP_NUM_THREADS-unset} $GDAL_CACHEMAX"])
    print({"numpy", "scipy", "sklearn", "torch"} & {*sys.modules} or "none", flush=True)
    os._exit(0)

cli.run_stage(replace(stage(sys.argv[1]), function=show), sys.argv[2:])
"""


@pytest.mark.parametrize(
    ("name", "more", "environment", "variables"),
    [
        ("evaluate", (), {}, "passive 1 64"),
        ("predict", ("--threads", "3"), {}, "passive 1 64"),
        ("preprocess", (), {}, "passive 1 64"),
        ("train", ("--threads", "3"), {}, "passive unset 64"),
        ("evaluate", (), {"OMP_NUM_THREADS": "5", "GDAL_CACHEMAX": "256"}, "passive 5 256"),
        ("predict", ("--threads", "3"), {"OMP_WAIT_POLICY": "active", "OMP_NUM_THREADS": "5"}, "active 5 64"),
    ],
)
def test_libraries_get_threads_and_a_cache_before_they_are_loaded_and_what_a_user_set_stays(
    name: str, more: tuple[str, ...], environment: dict[str, str], variables: str, tmp_path: Path
) -> None:
    (tmp_path / "input").mkdir()
    paths = [f"{port.flag}=input" for port in stage(name).of(Input) if port.required]
    paths += [f"{port.flag}=output" for port in stage(name).of(Output) if port.required]
    command = [sys.executable, "-c", SHOW_LIBRARIES, name, *paths, *more]
    names = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "GDAL_CACHEMAX")
    unset = {key: value for key, value in os.environ.items() if key not in names}
    done = subprocess.run(command, env=unset | environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (f"{variables}\nnone\n", 0), done.stderr
