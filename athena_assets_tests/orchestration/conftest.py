"""One embedded AWS for a test process, a lake of its own for each test, and a Dagster instance that keeps its runs."""

from collections.abc import Iterator

import dagster as dg
import pytest

from athena_assets.local import EmbeddedAws
from athena_assets_tests.e2e.lake import ROWS_PER_FILE, Lake


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedAws]:
    with EmbeddedAws.start() as aws:
        yield aws


@pytest.fixture
def lake(server: EmbeddedAws) -> Iterator[Lake]:
    server.reset()
    server.faults.rows_per_file(ROWS_PER_FILE)
    yield Lake(server)
    server.faults.clear()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance
