"""Well-formed errors of AWS services, as the SDK reads them."""

from __future__ import annotations

import json
import uuid
from xml.sax.saxutils import escape

from athena_assets.local.http_server import Reply

_QUERY_PROTOCOL = frozenset({"cloudformation", "iam", "sns", "sts"})


def json_error(status: int, code: str, message: str, **fields: str) -> Reply:
    """An error of a JSON-protocol service. Extra fields are the modeled members of the error shape."""
    body = {"__type": code, "Message": message, **fields}
    headers = [
        ("Content-Type", "application/x-amz-json-1.1"),
        ("x-amzn-errortype", code),
        ("x-amzn-RequestId", str(uuid.uuid4())),
    ]
    return Reply(status, headers, json.dumps(body).encode())


def service_error(service: str, status: int, code: str, message: str) -> Reply:
    """An error in the service's protocol; S3's are in `s3_gate`."""
    if service not in _QUERY_PROTOCOL:
        return json_error(status, code, message)
    kind = "Sender" if status < 500 else "Receiver"
    told = f"<Error><Type>{kind}</Type><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
    request_id = f"<RequestId>{uuid.uuid4()}</RequestId>"
    body = f"<ErrorResponse>{told}{request_id}</ErrorResponse>"
    return Reply(status, [("Content-Type", "text/xml")], body.encode())
