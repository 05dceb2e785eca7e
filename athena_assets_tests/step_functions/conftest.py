"""The lake of the e2e tests, and a request run in steps without Step Functions."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest

from athena_assets import AwsSettings, Target
from athena_assets.step_functions import handler as function
from athena_assets.step_functions.documents import Wish
from athena_assets_tests.cli.conftest import cli
from athena_assets_tests.e2e.conftest import lake, server
from athena_assets_tests.e2e.lake import LEASE, Lake

__all__ = ["cli", "lake", "server"]

MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:unload"


@dataclass(slots=True)
class Remaining:
    """Lambda's context: how much of the function's time is left."""

    seconds: float = 60.0

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


@dataclass(slots=True)
class Steps:
    """One execution, whose steps a test calls itself."""

    wish: Wish
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    memory: Any = None
    taken: int = 0

    @property
    def execution(self) -> str:
        return f"{MACHINE.replace(':stateMachine:', ':execution:')}:{self.name}"

    def step(self, seconds: float = 60.0, *, action: str = "step") -> dict[str, Any]:
        """One call of the function."""
        self.taken += 1
        event = {
            "action": action,
            "execution": self.execution,
            "name": self.name,
            "input": self.wish.document(),
            "memory": self.memory,
        }
        result = function.handler(event, Remaining(seconds))
        if action == "step":
            self.memory = result["memory"]
        return result

    def to_the_end(self) -> dict[str, Any]:
        """All steps, with shorter pauses than Step Functions would make."""
        until = time.monotonic() + 60
        while (result := self.step())["status"] == "waiting":
            assert time.monotonic() < until, result
            time.sleep(0.2)
        return result


@dataclass(slots=True)
class Function:
    """The function as it is configured for a lake."""

    settings: AwsSettings

    def steps(self, target: Target, **wish: Any) -> Steps:
        return Steps(Wish(target=target, output_location=self.settings.output_location, **wish))


@pytest.fixture
def function_of(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Function:
    """The function's environment is this process's."""
    for name, value in lake.aws.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ATHENA_ASSETS_LEASE_SECONDS", str(LEASE))
    function._publisher.cache_clear()
    return Function(lake.settings)
