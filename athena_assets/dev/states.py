"""The state machine of deploy/step_functions.yaml on the embedded AWS."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

from athena_assets.local import EmbeddedAws
from athena_assets.step_functions.machine import Notify, definition_text, state_machine

HANDLER = "athena_assets.step_functions.handler.handler"


def make_state_machine(
    aws: EmbeddedAws, settings: Mapping[str, str], *, notify: Notify | None = None, timeout: int = 900
) -> str:
    """Makes role, function and state machine, and returns the state machine's ARN.

    The function's code is this very package, which the embedded AWS finds among its own: the zip is empty.

    Args:
        settings: the function's environment, such as `ATHENA_ASSETS_OUTPUT_LOCATION`.
        notify: who is told how executions end.
        timeout: seconds that a step may take.
    """
    role = aws.client("iam").create_role(RoleName="publisher", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    function = aws.client("lambda").create_function(
        FunctionName="publish",
        Runtime="python3.13",
        Role=role,
        Handler=HANDLER,
        Code={"ZipFile": _empty_zip()},
        Timeout=timeout,
        Environment={"Variables": dict(settings)},
    )
    definition = definition_text(state_machine(function["FunctionArn"], notify))
    machine = aws.client("stepfunctions").create_state_machine(name="unload", definition=definition, roleArn=role)
    return str(machine["stateMachineArn"])


def _empty_zip() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w"):
        pass
    return sink.getvalue()
