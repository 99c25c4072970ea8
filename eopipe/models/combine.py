"""A model folder of an ensemble, made of its members' folders: trainings on the same data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError, UsageError, some_of
from eopipe.models.model_files import copy_files, module_of
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
from eopipe.models.networks import ensemble_weights
from eopipe.publish import sha256
from eopipe.scenes.item import read_item
from eopipe.stac.write import ItemExtent
from eopipe.telemetry.journal import METRICS
from eopipe.text_files import read_json

# What all members have in common.
IN_COMMON = ("bands", "classes", "mean", "std", "chip", "task", "target", "unit", "min_share", "trained_on", "fill")
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
        """What all members have in common, by name: their task and their data."""
        known = {key: self.card[key] for key in IN_COMMON if key in self.card}
        known |= {"place": [self.extent.geometry, self.extent.bbox]}
        return known | {"time": f"{self.extent.start:%Y-%m-%d} to {self.extent.end:%Y-%m-%d}"}

    def check_fits(self, first: "EnsembleMember") -> None:
        """Raise BadInputError, with what differs, where both cannot be members of one ensemble."""
        pairs = {
            name: (first.requirements.get(name), self.requirements.get(name))
            for name in sorted(first.requirements.keys() | self.requirements.keys())
        }
        rows = [f"{name} is {_short(a)} there and {_short(b)} here" for name, (a, b) in pairs.items() if a != b]
        if rows:
            raise BadInputError(
                f"{self.folder} does not fit {first.folder}, the first member: {some_of(rows, MAX_LISTED, '; ')}; "
                "members are trainings with the same data, and other seeds or models"
            )


def _short(value: Any) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def read_members(models: Sequence[Path]) -> list[EnsembleMember]:
    """Read the members of an ensemble and check that they fit together.

    Raises UsageError for fewer than two or more than 64, BadInputError for models of other data, for two with the same
    weights, and for two custom models that differ.
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
    custom = [member for member in members if module_of(member.trained.architecture.name)]
    for member in custom[1:]:
        first, other = ((model.trained.architecture, model.trained.window) for model in (custom[0], member))
        if other != first:
            raise BadInputError(
                f"{custom[0].folder} and {member.folder} are different custom models; an ensemble has one, with "
                "built-in models beside it"
            )
    return members


def write_ensemble(members: Sequence[EnsembleMember], folder: Path) -> None:
    """Write the folder of an ensemble, as any other model folder; the same members in this order give the same bytes.

    The history and the journal are copied from the first member; each member's are in `members`, and `seeds` among the
    settings has their seeds. Settings that differ between members are left out.
    """
    first = next((member for member in members if module_of(member.trained.architecture.name)), members[0])
    weights, of_members = [read_weights(member.folder) for member in members], [m.trained.architecture for m in members]
    copy_files(first.trained.architecture.files, folder)
    _copy_histories(first, folder)
    for number, member in enumerate(members):
        _copy_histories(member, folder / "members" / str(number))
    cards = [member.card["settings"] for member in members]
    settings = {key: value for key, value in cards[0].items() if all(card.get(key) == value for card in cards)}
    seeds = [member.card["settings"].get("seed") for member in members]
    settings |= {"seeds": seeds} if None not in seeds else {}
    history = read_json(first.folder / HISTORY) if (first.folder / HISTORY).is_file() else {}
    write_model_folder(
        folder,
        replace(first.trained, members=len(members), kinds=() if len(set(of_members)) == 1 else tuple(of_members)),
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
