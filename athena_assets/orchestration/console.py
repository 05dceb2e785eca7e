"""Links into the AWS console."""

import os

from athena_assets.unload import Publisher

# By the region's prefix (AWS general reference, "AWS partitions"). Isolated partitions have consoles of their own that
# are not public: no link.
_DOMAINS = {"cn-": "console.amazonaws.cn", "us-gov-": "console.amazonaws-us-gov.com", "us-iso": None, "eu-iso": None}


def query_link(publisher: Publisher, query_id: str) -> str | None:
    """The query in the Athena console's history.

    None if the region is unknown, or where an endpoint other than AWS's own is set, in the settings or the
    environment: then the console that would be opened does not know the query. (An `endpoint_url` in a profile is not
    seen from here.)
    """
    region = publisher.region
    endpoint = publisher.settings.endpoint_url or next(
        (os.environ[name] for name in ("AWS_ENDPOINT_URL_ATHENA", "AWS_ENDPOINT_URL") if os.environ.get(name)), None
    )
    if region is None or endpoint is not None:
        return None
    domain = next((each for prefix, each in _DOMAINS.items() if region.startswith(prefix)), "console.aws.amazon.com")
    if domain is None:
        return None
    return f"https://{region}.{domain}/athena/home?region={region}#/query-editor/history/{query_id}"
