"""Recipes of images, an environment of conda, and the set-up of a site: images cannot be built here.

Linters read the recipes, and their steps run in a plain folder with a virtual environment in the place of the image;
packages are taken from this environment instead of being downloaded.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from projects import ROOT, environment
from spython.main.parse.parsers import get_parser

DOCKERFILE, DEFINITION = ROOT / "containers/Dockerfile", ROOT / "containers/eopipe.def"
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())


def instructions() -> Iterator[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text())
    for line in text.splitlines():
        if line and not line.startswith("#"):
            word, _, value = line.partition(" ")
            yield word, value


class Image:
    """A folder used as the root of an image; the steps of a recipe run in it."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root
        venv.create(root / "python", symlinks=True)
        (root / "bin").mkdir()
        for name in ("useradd", "apt-get"):
            fake = root / "bin" / name
            fake.write_text('#!/bin/sh\necho "$@" > "$0.arguments"\n')
            fake.chmod(0o755)
        # The locked files are of a package index.
        python = root / "bin/python"
        locked = f'case "$*" in *--require-hashes*) echo "$@" >> {python}.arguments; exit 0;; esac'
        python.write_text(f'#!/bin/sh\n{locked}\nexec {root}/python/bin/python "$@"\n')
        python.chmod(0o755)
        packages = [path for path in sys.path if path.endswith("site-packages")]
        # No download: what eopipe needs is that of this environment.
        offline = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_IGNORE_INSTALLED": "1"}
        self.environment = os.environ | offline | {"PYTHONPATH": ":".join(packages)}
        self.environment["PATH"] = f"{root / 'bin'}:{root / 'python/bin'}:{os.environ['PATH']}"

    def copy(self, name: str, target: Path) -> None:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / name, target)

    def run(self, step: str) -> None:
        moved = step.replace("/opt/", f"{self.root}/opt/").replace("/var/", f"{self.root}/var/")
        line = ["sh", "-e", "-c", moved]
        done = subprocess.run(
            line, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def answers(self) -> None:
        """What is installed runs, with its workflow and its profiles, and is not the checkout."""
        clean = self.environment | {"HOME": str(self.root)}
        modules = "import eopipe.run.project as p, snakemake_report_plugin_eopipe as r; "
        code = f"{modules}print(p.__file__, p.snakefile(), r.__file__)"
        command = [self.root / "python/bin/python", "-c", code]
        done = subprocess.run(command, cwd=self.root, env=clean, capture_output=True, text=True, check=True)
        assert all(Path(path).is_relative_to(self.root) for path in done.stdout.split())
        share = self.root / "python/share/eopipe"
        assert {p.name for p in (share / "profiles").iterdir()} == {p.name for p in (ROOT / "profiles").iterdir()}
        assert (share / "profiles/pbs/status.sh").is_file()
        assert (self.root / "opt/eopipe/cwl/pipeline.cwl").is_file()
        assert (self.root / "bin/apt-get.arguments").read_text().split()[-1] == "git"


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


def test_both_recipes_copy_all_that_the_wheel_is_built_from() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    needed = {Path(name).parts[0] for names in settings["data-files"].values() for name in names}
    copied = {name for word, value in instructions() if word == "COPY" for name in value.split()[:-1]}
    files = {pair.split()[0] for pair in get_parser("singularity")(str(DEFINITION)).recipe["spython-base"].files}
    ignored = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().split("\n")
    for names in (copied, files, {line.removeprefix("!") for line in ignored if line.startswith("!")}):
        assert needed <= names


@pytest.mark.exhaustive
def test_the_steps_of_the_dockerfile_give_eopipe_to_a_user_who_is_not_root(image: Image) -> None:
    for word, value in instructions():
        if word == "WORKDIR":
            image.folder = image.root / value.strip("/")
            image.folder.mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            *names, target = value.split()
            for name in names:
                image.copy(name, image.folder / (name if target == "./" else target))
        elif word in ("ENV", "ARG"):
            image.environment |= dict(pair.partition("=")[::2] for pair in shlex.split(value))
        elif word == "RUN":
            image.run(value)
    image.answers()
    assert "--uid 1000 eopipe" in (image.root / "bin/useradd.arguments").read_text()
    assert dict(instructions())["USER"] == "1000"


@pytest.mark.exhaustive
def test_a_cwl_engine_that_runs_a_tool_in_the_image_ends_with_success(tmp_path: Path) -> None:
    words = {word: json.loads(value) for word, value in instructions() if word in ("ENTRYPOINT", "CMD")}
    image = tmp_path / "image.json"
    image.write_text(json.dumps({"ENTRYPOINT": []} | words))
    variables = environment() | {"IMAGE": str(image)}
    variables["PATH"] = f"{ROOT / 'tests/engines'}:{variables['PATH']}"
    command = ["cwltool", "--quiet", "--overrides", ROOT / "cwl/overrides/docker.yml", "--outdir", tmp_path / "out"]
    preserved = ["--preserve-environment", "IMAGE"]
    done = subprocess.run(
        [*command, *preserved, ROOT / "cwl/search.cwl", ROOT / "cwl/search.yml"],
        env=variables,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/items/manifest.json").is_file()
    (line,) = image.with_suffix(".log").read_text().splitlines()
    assert json.loads(line)[:2] == ["eopipe", "search"]
    # Without a command, as `docker run eopipe` starts it, the image explains itself.
    subprocess.run(
        ["docker", "run", "--mount=type=bind,source=/,target=/", "--workdir=/", "eopipe"], env=variables, check=True
    )
    assert json.loads(image.with_suffix(".log").read_text().splitlines()[1]) == ["eopipe", "--help"]


@pytest.mark.exhaustive
def test_the_steps_of_the_apptainer_definition_give_eopipe(image: Image) -> None:
    recipe = get_parser("singularity")(str(DEFINITION)).recipe["spython-base"]
    for pair in recipe.files:
        name, target = pair.split()
        moved = image.root / target.strip("/")
        moved.parent.mkdir(parents=True, exist_ok=True)
        image.copy(name, moved)
    steps = [line for line in recipe.install if "tests.sh" not in line]
    image.run("\n".join(steps).replace("{{ TORCH_INDEX }}", ""))
    image.run("eopipe --version")
    image.answers()


def test_both_recipes_install_only_files_with_a_known_hash_and_torch_alone_from_another_index(tmp_path: Path) -> None:
    recipe = get_parser("singularity")(str(DEFINITION)).recipe["spython-base"]
    left_out = ("tests.sh", "cd ", "apt-get")
    post = "\n".join(line for line in recipe.install if not any(word in line for word in left_out))
    docker = "\n".join(value for word, value in instructions() if word == "RUN" and "pip install" in value)
    (tmp_path / "python").write_text('#!/bin/sh\nprintf "%s|" "$@"\necho\n')
    (tmp_path / "eopipe").write_text("#!/bin/sh\n")
    for program in ("python", "eopipe"):
        (tmp_path / program).chmod(0o755)
    locked = "-m|pip|install|--no-cache-dir|--no-deps|--require-hashes|"
    address = "https://torch.example.org/cpu"
    torch = {
        "": f"{locked}--requirement|locks/torch-cuda.lock|",
        address: f"{locked}--index-url|{address}|--requirement|locks/torch-cpu.lock|",
    }
    rest = [
        f"{locked}--requirement|locks/requirements.lock|",
        "-m|pip|install|--no-cache-dir|--no-deps|--no-build-isolation|.|",
        "-m|pip|check|",
    ]
    for index, first in torch.items():
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TORCH_INDEX": index}
        for step in (docker, post.replace("{{ TORCH_INDEX }}", index)):
            done = subprocess.run(["sh", "-ec", step], env=environment, capture_output=True, text=True, check=True)
            assert done.stdout.split() == [first, *rest]


def test_the_recipes_start_from_one_tag_and_linters_find_nothing() -> None:
    bases = [dict(instructions())["FROM"], get_parser("singularity")(str(DEFINITION)).recipe["spython-base"].fromHeader]
    assert bases[0] == bases[1]
    assert re.fullmatch(r"python:3\.11-slim-\w+", bases[0])
    linter = shutil.which("hadolint", path=environment()["PATH"])
    assert linter
    done = subprocess.run([linter, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


def test_the_image_is_built_from_what_git_keeps_and_what_the_ignore_file_lets_through() -> None:
    copied = [name for word, value in instructions() if word == "COPY" for name in value.split()[:-1]]
    included = (ROOT / "containers/Dockerfile.dockerignore").read_text().split("\n")
    assert {f"!{name}" for name in copied} == {line for line in included if line.startswith("!")}
    files = get_parser("singularity")(str(DEFINITION)).recipe["spython-base"].files
    assert {pair.split()[0] for pair in files} == set(copied)


def test_the_environment_of_conda_has_the_pins_of_the_constraints() -> None:
    recipe = yaml.safe_load((ROOT / "containers/environment.yml").read_text())
    python, pip, through_pip = recipe["dependencies"]
    assert (python, pip) == ("python=3.11", "pip")
    constraints, *pins, checkout = through_pip["pip"]
    assert (constraints, checkout) == ("--constraint ../constraints.txt", "..")
    assert all(PINS[name] == version for name, version in (pin.split("==") for pin in pins))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=!~\[]", line)[0].lower() for line in project["dependencies"]}
    assert {pin.partition("==")[0].lower() for pin in pins} == needed
