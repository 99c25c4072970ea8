"""Builds the CWL documents that are not committed, and puts the commit of the source into archives and wheels.

The commit is for the records of an installed eopipe.
"""

import importlib
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

COMMIT = "eopipe/commit.txt"


def source_commit() -> str:
    """The commit of this checkout, with `+` if files are changed, or that of the checkout that an archive is from."""
    if Path(COMMIT).is_file():
        return Path(COMMIT).read_text()
    if not Path(".git").exists():
        return ""
    describe = ["git", "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=+"]
    return subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()


class BuildWithCommit(build_py):
    """The modules of a wheel with the commit; an editable installation asks git."""

    def run(self) -> None:
        """Write the commit beside them."""
        super().run()
        if not self.editable_mode:
            Path(self.build_lib, COMMIT).write_text(source_commit())


class ArchiveWithCommit(sdist):
    """The files of a source archive with the commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Write the commit into the archive."""
        super().make_release_tree(base_dir, files)
        path = Path(base_dir, COMMIT)
        path.unlink(missing_ok=True)
        path.write_text(source_commit())


# Before the globs of `data-files` are read. A build does not look for modules here by itself.
sys.path.insert(0, str(Path(__file__).parent))
write_built = importlib.import_module("dev.cwl_variants").write_built
write_built(Path("cwl"))
setup(cmdclass={"build_py": BuildWithCommit, "sdist": ArchiveWithCommit})
