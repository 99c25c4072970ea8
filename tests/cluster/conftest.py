"""A real Slurm, started once for the tests of this folder."""

import os
from collections.abc import Iterator

import pytest

from slurm import Cluster, lacking


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Four nodes without accounting."""
    if reason := lacking():
        if os.environ.get("EOPIPE_NO_SKIP"):
            pytest.fail(reason)
        pytest.skip(reason)
    made = Cluster()
    made.start(os.getpid())
    try:
        yield made
    finally:
        made.stop()
