"""Looks at many tables: pages, and the time that a look may take. Real clients against a server with two pages."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from athena_assets.aws.glue_catalog import CallFailed, OutOfTime, files_at, tables_of
from athena_assets.aws.glue_versions import VersionKind
from athena_assets.aws.glue_watch import look_at
from athena_assets.aws.session import AwsClients, AwsSettings
from athena_assets.core.target import UpstreamTable

ICEBERG = {"table_type": "ICEBERG", "metadata_location": "s3://lake/1.json"}
LISTING = """<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{next}
<Contents><Key>t/{number}</Key><Size>1</Size><ETag>"e"</ETag></Contents></ListBucketResult>"""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.calls: list[str] = []
        self.pages = {"": ("a", "b"), "2": ("c", "D"), "3": ("e",)}
        self.broken = ""  # the page that is refused


class Handler(BaseHTTPRequestHandler):
    """Glue's GetTables with pages of two tables, and a listing of S3 that goes on for ever."""

    server: Server

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        page = asked.get("NextToken", "")
        self.server.calls.append(page)
        if page and page == self.server.broken:
            self._answer(400, json.dumps({"__type": "EntityNotFoundException", "message": "gone"}))
            return
        following = {"": "2", "2": "3"}.get(page)
        storage = {"Location": "s3://lake/t/"}
        tables = [
            {"Name": name, "Parameters": ICEBERG, "StorageDescriptor": storage} for name in self.server.pages[page]
        ]
        self._answer(200, json.dumps({"TableList": tables} | ({"NextToken": following} if following else {})))

    def do_GET(self) -> None:
        number = len(self.server.calls)
        self.server.calls.append(self.path)
        token = f"<NextContinuationToken>{number}</NextContinuationToken>"
        self._answer(200, LISTING.format(truncated="true", next=token, number=number))

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def clients(server: Server) -> AwsClients:
    return AwsClients(AwsSettings(region="eu-central-1", endpoint_url=f"http://127.0.0.1:{server.server_port}"))


def test_tables_are_found_on_all_pages(server: Server, clients: AwsClients) -> None:
    assert set(tables_of(clients, "lake", ["a", "d", "e", "x"])) == {"a", "d", "e"}
    assert server.calls == ["", "2", "3"]


def test_no_page_is_asked_for_once_all_tables_are_found(server: Server, clients: AwsClients) -> None:
    assert set(tables_of(clients, "lake", ["d", "b"])) == {"b", "d"}
    assert server.calls == ["", "2"]


def test_a_page_that_fails_leaves_no_table_for_missing(server: Server, clients: AwsClients) -> None:
    server.broken = "2"
    with pytest.raises(CallFailed, match="GetTables answered EntityNotFoundException: gone"):
        tables_of(clients, "lake", ["a", "x"])
    tables = [UpstreamTable("lake", name) for name in ("a", "x")]
    seen = look_at(clients, tables, {}, seconds=60)
    assert seen.versions == {}
    assert set(seen.failed) == set(tables)


def test_a_listing_ends_when_its_time_is_over(clients: AwsClients) -> None:
    pages = count()
    with pytest.raises(OutOfTime):
        list(files_at(clients, "s3://lake/t/", in_time=lambda: next(pages) < 3))
    assert next(pages) == 4


def test_a_listing_without_end_fails_its_table_and_holds_up_no_other(server: Server, clients: AwsClients) -> None:
    """On a clock that jumps: a table that uses all of its time goes behind those that were not reached."""
    endless, quick = UpstreamTable("lake", "e"), UpstreamTable("lake", "a")

    def clock() -> float:
        return 100.0 if sum("list-type" in each for each in server.calls) >= 60 else 0.0

    seen = look_at(clients, [quick, endless], {endless: VersionKind.LISTING}, seconds=50, clock=clock)
    assert set(seen.versions) == {quick}
    assert set(seen.failed) == {endless}
    assert "its listing takes longer than a look may" in seen.failed[endless]
    assert seen.unreached == []


def test_a_look_without_time_reaches_nothing_and_keeps_the_order(server: Server, clients: AwsClients) -> None:
    tables = [UpstreamTable("lake", name) for name in ("c", "a", "b")]
    seen = look_at(clients, tables, {}, seconds=0)
    assert list(seen.unreached) == tables
    assert server.calls == []
