"""A model folder of an ensemble, made of its members' folders: trainings that differ in their seed alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError, UsageError
from eopipe.models.ensemble import ensemble_weights
from eopipe.models.model_files import copy_files
from eopipe.models.model_folder import (
    HISTORY,
    MOST_MEMBERS,
    TrainedModel,
    model_item,
    read_model_card,
    read_trained_model,
    read_weights,
    weights_file,
    write_model_folder,
)
from eopipe.publish import read_json, sha256
from eopipe.scenes.item import read_item
from eopipe.stac.write import ItemExtent
from eopipe.telemetry.journal import METRICS

# What may differ between members: the libraries are those that were installed.
MAY_DIFFER = ("seed", "software")
MAX_LISTED, LONGEST_VALUE = 5, 60


@dataclass(frozen=True)
class EnsembleMember:
    """A model folder, all that its item says of it by plain names, and its weights' sha256."""

    folder: Path
    card: dict[str, Any]
    trained: TrainedModel
    extent: ItemExtent
    sha256: str

    @classmethod
    def read(cls, folder: Path) -> "EnsembleMember":
        """Read the item of a model, and compare its weights with their checksum; nothing is imported.

        Raises BadInputError for what is not a model, and for an ensemble.
        """
        card, trained = read_model_card(folder), read_trained_model(folder)
        if trained.members > 1:
            raise BadInputError(f"{folder} is an ensemble itself; give the folders of its {trained.members} members")
        try:
            extent = ItemExtent.of_item(read_item(model_item(folder)))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadInputError(f"{folder} lacks the place or the time of its training: {error}") from error
        return cls(folder, card, trained, extent, sha256(weights_file(folder)))

    @cached_property
    def requirements(self) -> dict[str, Any]:
        """What all members have in common, by name: the model, its data, and the settings of its training."""
        settings, card = self.card["settings"], {key: value for key, value in self.card.items() if key != "settings"}
        known = settings | card | {"place": [self.extent.geometry, self.extent.bbox]}
        known |= {"time": f"{self.extent.start:%Y-%m-%d} to {self.extent.end:%Y-%m-%d}"}
        return {key: value for key, value in known.items() if key not in MAY_DIFFER}

    def check_fits(self, first: "EnsembleMember") -> None:
        """Raise BadInputError, with what differs, where both cannot be members of one ensemble."""
        pairs = {
            name: (first.requirements.get(name), self.requirements.get(name))
            for name in sorted(first.requirements.keys() | self.requirements.keys())
        }
        rows = [f"{name} is {_short(a)} there and {_short(b)} here" for name, (a, b) in pairs.items() if a != b]
        if rows:
            more = f" and {len(rows) - MAX_LISTED} more" if len(rows) > MAX_LISTED else ""
            raise BadInputError(
                f"{self.folder} does not fit {first.folder}, the first member: {'; '.join(rows[:MAX_LISTED])}{more}; "
                "members are trainings with the same data and settings, and other seeds"
            )


def _short(value: Any) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def read_members(models: Sequence[Path]) -> list[EnsembleMember]:
    """Read the members of an ensemble and check that they fit together.

    Raises UsageError for fewer than two or more than 64, BadInputError for models that differ in more than their seed
    and for two with the same weights.
    """
    if not 2 <= len(models) <= MOST_MEMBERS:
        raise UsageError(f"an ensemble has 2 to {MOST_MEMBERS} members, not {len(models)}; give as many --models")
    members = [EnsembleMember.read(folder) for folder in models]
    for number, member in enumerate(members):
        if twins := [other.folder for other in members[:number] if other.sha256 == member.sha256]:
            raise BadInputError(
                f"{twins[0]} and {member.folder} have the same weights; train each member with another seed"
            )
    for member in members[1:]:
        member.check_fits(members[0])
    return members


def write_ensemble(members: Sequence[EnsembleMember], folder: Path) -> None:
    """Write the folder of an ensemble, as any other model folder; the same members in this order give the same bytes.

    The history and the journal are copied from the first member; each member's are in `members`, and `seeds` among the
    settings has their seeds. Raises BadInputError where the tensors of members have other names, shapes or types.
    """
    first = members[0]
    weights = [read_weights(member.folder) for member in members]
    shapes = [{name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()} for tensors in weights]
    for member, of_member in zip(members, shapes, strict=True):
        if of_member != shapes[0]:
            raise BadInputError(f"the weights of {member.folder} have other names or shapes than {first.folder}")
    copy_files(first.trained.architecture.files, folder)
    _copy_histories(first, folder)
    for number, member in enumerate(members):
        _copy_histories(member, folder / "members" / str(number))
    settings = {key: value for key, value in first.card["settings"].items() if key != "seed"}
    seeds = [member.card["settings"].get("seed") for member in members]
    settings |= {"seeds": seeds} if None not in seeds else {}
    history = read_json(first.folder / HISTORY) if (first.folder / HISTORY).is_file() else {}
    write_model_folder(
        folder,
        replace(first.trained, members=len(members)),
        ensemble_weights(weights),
        history.get("validations", []),
        settings,
        history.get("worlds"),
        first.extent,
        first.card.get("software"),
    )


def _copy_histories(member: EnsembleMember, target: Path) -> None:
    """Copy the validations and the journal of a training, where its folder has them."""
    for name in (HISTORY, METRICS):
        if (member.folder / name).is_file():
            target.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes((member.folder / name).read_bytes())
