"""Which file Snakemake uses for the name of a profile."""

from dataclasses import dataclass
from pathlib import Path

from eopipe.clusters.executor_patches import profile_file, site_profiles, user_profiles
from eopipe.errors import UsageError


@dataclass(frozen=True)
class ProfileFile:
    """The file that a profile's name means, and those of the same name that it hides."""

    file: Path
    hidden: tuple[Path, ...]


def find_profile(name: str) -> ProfileFile:
    """Search where Snakemake does, in its order: a path, the working folder, the user's profiles, the site's.

    Raises UsageError, with all folders, where there is none.
    """
    folders = [Path.cwd(), user_profiles(), site_profiles()]
    if Path(name).exists():
        folders.insert(0, Path(name).parent)
    files = [file for folder in folders if (file := profile_file(folder / Path(name).name))]
    unique = list(dict.fromkeys(file.resolve() for file in files))
    if not unique:
        searched = ", ".join(map(str, folders))
        raise UsageError(
            f"there is no profile {name} in {searched}; `eopipe profile slurm` writes one for your cluster"
        )
    return ProfileFile(files[0], tuple(file for file in files[1:] if file.resolve() != unique[0]))
