"""No mutation of what eopipe reads ends in an exception that is not one of its own."""

from pathlib import Path

import pytest
from fuzz import READERS, fuzz

# Mutations of each reader in the fast and in the exhaustive suite, by hand 20,000: `python tests/fuzz.py`.
FEW, MANY = 400, 2500


@pytest.mark.parametrize("name", READERS)
def test_no_mutation_ends_in_an_uncaught_exception(name: str, tmp_path: Path) -> None:
    tally = fuzz(name, FEW * READERS[name][0] // 100, 1, tmp_path)
    assert tally.uncaught == {}
    assert tally.counts["accepted"] > 0 or name == "manifest", "what is sound is read"
    assert tally.counts["refused"] > 0 or name == "status", "what is not is refused"


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", READERS)
def test_no_mutation_of_many_ends_in_an_uncaught_exception(name: str, tmp_path: Path) -> None:
    assert fuzz(name, MANY * READERS[name][0] // 100, 2, tmp_path).uncaught == {}
