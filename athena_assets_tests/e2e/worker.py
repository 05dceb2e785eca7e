"""A process of its own that publishes what it reads from standard input, one JSON message a line.

First the settings, then one message for each publication. It says {"story": line} as things happen, and at the end
{"outcome": ...} or {"error": ...}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from athena_assets import AthenaAssetsError, AwsSettings, Publisher, Skipped, Target


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    publisher = Publisher(
        AwsSettings(
            endpoint_url=settings["endpoint_url"],
            region="us-east-1",
            access_key_id="testing",
            secret_access_key="testing",
            output_location=settings["output_location"],
        ),
        lease_seconds=settings["lease_seconds"],
    )
    for line in sys.stdin:
        message = json.loads(line)
        target = Target(**message["target"])
        try:
            outcome = publisher.unload(target, observe=lambda line: say(story=line), **message["arguments"])
        except AthenaAssetsError as error:
            say(error=type(error).__name__, message=str(error))
        else:
            assert not isinstance(outcome, Skipped)
            say(
                outcome=type(outcome).__name__,
                query_id=outcome.publication.query_id,
                adopted=getattr(outcome, "adopted", False),
                request=outcome.publication.request,
            )


if __name__ == "__main__":
    main()
