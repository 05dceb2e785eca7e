"""Links into the AWS console."""

import os
import re
from urllib.parse import quote

from athena_assets.core.location import Location
from athena_assets.unload import Publisher

# By the region's prefix (AWS general reference, "AWS partitions"). Isolated partitions have consoles of their own that
# are not public: no link.
_DOMAINS = {"cn-": "console.amazonaws.cn", "us-gov-": "console.amazonaws-us-gov.com", "us-iso": None, "eu-iso": None}

_EXECUTION = re.compile(r"\bexecution (arn:\S+)")
_QUERY = re.compile(r"\bquery ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")  # as the protocol's reports name it


def query_link(publisher: Publisher, query_id: str) -> str | None:
    """The query in the Athena console's history; None where `_console` is."""
    console = _console(publisher, "athena")
    return None if console is None else f"{console}#/query-editor/history/{query_id}"


def execution_link(publisher: Publisher, arn: str) -> str | None:
    """An execution in the Step Functions console; None where `_console` is."""
    console = _console(publisher, "states")
    return None if console is None else f"{console}#/v2/executions/details/{arn}"


def s3_link(publisher: Publisher, location: Location) -> str | None:
    """The objects under a location in the S3 console; None where `_console` is."""
    console = _console(publisher, f"s3/buckets/{quote(location.bucket)}")
    return None if console is None else f"{console}&prefix={quote(location.prefix, safe='')}"


def with_link(publisher: Publisher, line: str) -> str:
    """A line of a publication's story, with a link behind the query or the execution that it names."""
    link = None
    if (named := _QUERY.search(line)) is not None:
        link = query_link(publisher, named[1])
    elif (named := _EXECUTION.search(line)) is not None:
        link = execution_link(publisher, named[1])
    return line if link is None else f"{line} ({link})"


def _console(publisher: Publisher, page: str) -> str | None:
    """A page of the console of the publisher's region: a service's name, and what follows it.

    None if the region is unknown, or where an endpoint other than AWS's own is set, in the settings or the
    environment: then the console that would be opened knows nothing of it. (An `endpoint_url` in a profile is not seen
    from here.)
    """
    region = publisher.region
    service = page.partition("/")[0]
    names = (f"AWS_ENDPOINT_URL_{service.upper()}", "AWS_ENDPOINT_URL")
    if region is None or publisher.settings.endpoint_url or any(os.environ.get(name) for name in names):
        return None
    domain = next((each for prefix, each in _DOMAINS.items() if region.startswith(prefix)), "console.aws.amazon.com")
    path = page if "/" in page else f"{page}/home"
    return None if domain is None else f"https://{region}.{domain}/{path}?region={region}"
