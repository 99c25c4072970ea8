"""Which file Snakemake takes for the name of a profile."""

from dataclasses import dataclass
from pathlib import Path

from eopipe.errors import UsageError


@dataclass(frozen=True)
class Resolved:
    """The file that a name means, and those of the same name that it hides."""

    file: Path
    shadowed: tuple[Path, ...]


def user_folder() -> Path:
    """Where a user's own profiles lie."""
    from snakemake.common import get_appdirs

    return Path(get_appdirs().user_config_dir)


def resolve(name: str) -> Resolved:
    """Look where Snakemake looks, in its order: a path, the working folder, the user's, the site's.

    Raises UsageError, with all places, where there is none.
    """
    from snakemake.common import get_appdirs

    places = [Path.cwd(), user_folder(), Path(get_appdirs().site_config_dir)]
    if Path(name).exists():
        places.insert(0, Path(name).parent)
    found = [file for place in places if (file := _file(place / Path(name).name))]
    unique = list(dict.fromkeys(file.resolve() for file in found))
    if not unique:
        there = ", ".join(str(place) for place in places)
        raise UsageError(f"there is no profile {name} in {there}; `eopipe profile slurm` writes one for your cluster")
    return Resolved(found[0], tuple(file for file in found[1:] if file.resolve() != unique[0]))


def _file(path: Path) -> Path | None:
    """The file of a profile: by Snakemake's own rule for a path, since it knows the versions in their names."""
    from snakemake.cli import get_profile_dir

    if path.is_file():
        return path
    told = get_profile_dir(str(path)) if path.is_dir() else None
    return told[1] if told else None
