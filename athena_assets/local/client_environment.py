"""What an AWS client of another process needs to know to use the embedded AWS."""

from __future__ import annotations

import os

REGION = "us-east-1"
ACCESS_KEY, SECRET_KEY = "embedded", "embedded"


def client_environment(endpoint_url: str, region: str = REGION) -> dict[str, str]:
    """Variables for a child process; the person's own profiles and proxies are kept out of it."""
    return {
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_DEFAULT_REGION": region,
        "AWS_REGION": region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
