"""Puts the commit of the source into archives and wheels, for the records of an installed eopipe."""

import subprocess
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


setup(cmdclass={"build_py": BuildWithCommit, "sdist": ArchiveWithCommit})
