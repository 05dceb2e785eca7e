"""UNLOAD with `partitioned_by`: Hive's folders, no look for emptiness, a hundred partitions. And second runs."""

from __future__ import annotations

import io
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from athena_assets.local import hive_partitions
from athena_assets_tests.local.conftest import Lake, eventually

PARQUET = "WITH (format = 'PARQUET')"


def partitioned(columns: str = "'k'", form: str = "PARQUET") -> str:
    return f"WITH (format = '{form}', partitioned_by = ARRAY[{columns}])"


def folders(lake: Lake, prefix: str = "p/") -> list[str]:
    return sorted({key.removeprefix(prefix).rpartition("/")[0] for key in lake.keys(prefix)})


@pytest.fixture
def keyed(lake: Lake) -> Lake:
    values = ["a", "b", None, "", "x/y z=%", "a"]
    lake.table("t", pa.table({"n": pa.array(range(6), pa.int64()), "k": pa.array(values)}))
    return lake


def test_each_value_has_a_folder_whose_files_lack_the_column(keyed: Lake) -> None:
    execution = keyed.run(f"UNLOAD (SELECT n, k FROM t) TO 's3://out/p/' {partitioned()}")
    assert execution["Status"]["State"] == "SUCCEEDED", execution["Status"]
    assert folders(keyed) == ["k=__HIVE_DEFAULT_PARTITION__", "k=a", "k=b", "k=x%2Fy z%3D%25"]
    (key,) = keyed.keys("p/k=a/")
    assert pq.read_table(io.BytesIO(keyed.read(key))).to_pydict() == {"n": [0, 5]}
    (key,) = keyed.keys("p/k=__HIVE")
    assert pq.read_table(io.BytesIO(keyed.read(key))).to_pydict() == {"n": [2, 3]}


def test_the_manifest_names_the_files_of_all_partitions(keyed: Lake) -> None:
    execution = keyed.run(f"UNLOAD (SELECT n, k FROM t) TO 's3://out/p/' {partitioned()}")
    lines = keyed.read(f"q/{execution['QueryExecutionId']}-manifest.csv", "results").decode().splitlines()
    assert sorted(lines) == [f"s3://out/{key}" for key in keyed.keys("p/")]
    assert len(lines) == 4


def test_several_columns_nest_in_their_order(lake: Lake) -> None:
    data = {
        "n": pa.array([1, 2], pa.int64()),
        "d": pa.array([date(2013, 1, 1), date(2013, 1, 2)]),
        "ok": pa.array([True, False]),
        "dec": pa.array([Decimal("1.50"), Decimal("-2.00")], pa.decimal128(10, 2)),
        "i": pa.array([7, 8], pa.int32()),
    }
    lake.table("t", pa.table(data))
    properties = partitioned("'d', 'ok', 'dec', 'i'", "JSON")
    assert lake.run(f"UNLOAD (SELECT * FROM t) TO 's3://out/p/' {properties}")["Status"]["State"] == "SUCCEEDED"
    assert folders(lake) == ["d=2013-01-01/ok=true/dec=1.50/i=7", "d=2013-01-02/ok=false/dec=-2.00/i=8"]


def test_a_second_run_appends(keyed: Lake) -> None:
    query = f"UNLOAD (SELECT n, k FROM t WHERE k = 'b') TO 's3://out/p/' {partitioned()}"
    for runs in (1, 2):
        assert keyed.run(query)["Status"]["State"] == "SUCCEEDED"
        assert len(keyed.keys("p/k=b/")) == runs


def test_large_partitions_are_cut_into_files(numbers: Lake) -> None:
    numbers.aws.faults.rows_per_file(30)
    numbers.run(f"UNLOAD (SELECT n, n % 2 AS k FROM numbers) TO 's3://out/p/' {partitioned()}")
    assert [len(numbers.keys(f"p/k={value}/")) for value in (0, 1)] == [2, 2]


@pytest.mark.parametrize(
    ("select", "columns", "reason"),
    [
        ("k, n", "'k'", "HIVE_COLUMN_ORDER_MISMATCH: Partition keys must be the last columns in the table"),
        ("n, k, n AS m", "'m', 'k'", "HIVE_COLUMN_ORDER_MISMATCH"),
        ("n, k", "'absent'", "INVALID_TABLE_PROPERTY: Partition columns [absent] not present in schema"),
        ("k", "'k'", "INVALID_TABLE_PROPERTY: Table contains only partition columns"),
        ("n, k", "'k', 'K'", "INVALID_TABLE_PROPERTY: partitioned_by names 'k' twice"),
        ("n, cast(n AS double) AS k", "'k'", "NOT_SUPPORTED: embedded Athena does not run partitioned_by a column"),
        ("n, 'Zürich' AS k", "'k'", "HIVE_INVALID_PARTITION_VALUE: Hive partition keys can only contain printable"),
    ],
)
def test_partition_columns_that_do_not_fit_fail_the_query(keyed: Lake, select: str, columns: str, reason: str) -> None:
    status = keyed.run(f"UNLOAD (SELECT {select} FROM t) TO 's3://out/p/' {partitioned(columns)}")["Status"]
    assert status["State"] == "FAILED"
    assert status["StateChangeReason"].startswith(reason)
    assert keyed.keys() == []


@pytest.mark.parametrize("partitions", [100, 101])
def test_a_hundred_partitions_are_the_most(lake: Lake, partitions: int) -> None:
    query = f"SELECT 1 AS one, k FROM unnest(sequence(1, {partitions})) AS u(k)"
    execution = lake.run(f"UNLOAD ({query}) TO 's3://out/p/' {partitioned()}")
    if partitions == 100:
        assert execution["Status"]["State"] == "SUCCEEDED"
        return
    assert execution["Status"]["StateChangeReason"] == (
        "HIVE_TOO_MANY_OPEN_PARTITIONS: Exceeded limit of 100 open writers for partitions/buckets"
    )
    assert execution["Status"]["AthenaError"]["ErrorCategory"] == 2
    assert len(lake.keys("p/")) == 100
    assert lake.keys(bucket="results") == []


def test_escaping_is_hives() -> None:
    names = hive_partitions.folder(["a b", "c=d"], ["ä\"#%'*/:=?\\{[]^\x7f\t", "}-._~ <>|"])
    assert names == "a b=ä%22%23%25%27%2A%2F%3A%3D%3F%5C%7B%5B%5D%5E%7F%09/c%3Dd=}-._~ <>|/"


@pytest.mark.parametrize("after_files", [0, 2, 9])
def test_a_requeued_query_leaves_orphans_and_names_its_second_files_only(numbers: Lake, after_files: int) -> None:
    numbers.aws.faults.rows_per_file(30)
    numbers.aws.faults.requeue("FROM numbers", after_files=after_files)
    execution = numbers.run(f"UNLOAD (SELECT n FROM numbers) TO 's3://out/p/' {PARQUET}")
    assert execution["Status"]["State"] == "SUCCEEDED", execution["Status"]
    lines = numbers.read(f"q/{execution['QueryExecutionId']}-manifest.csv", "results").decode().splitlines()
    written = {f"s3://out/{key}" for key in numbers.keys("p/")}
    assert len(lines) == 4
    assert set(lines) < written if after_files else set(lines) == written
    assert len(written) == 4 + min(after_files, 4)


def test_a_requeued_query_is_queued_again_and_only_once(numbers: Lake) -> None:
    faults = numbers.aws.faults
    first = faults.hold_queries(at="queued")
    faults.requeue("FROM numbers", after_files=1)
    query_id = numbers.start(f"UNLOAD (SELECT n FROM numbers) TO 's3://out/p/' {PARQUET}")
    eventually(lambda: faults.held(first) == [query_id])
    second = faults.hold_queries(at="queued")
    faults.release(first)
    eventually(lambda: faults.held(second) == [query_id])
    faults.release(second)
    assert numbers.wait(query_id)["Status"]["State"] == "SUCCEEDED"
    other = numbers.run(f"UNLOAD (SELECT n FROM numbers) TO 's3://out/other/' {PARQUET}")
    assert other["Status"]["State"] == "SUCCEEDED"
    assert len(numbers.keys("other/")) == 1


def test_a_requeued_query_can_be_stopped_in_the_queue(numbers: Lake) -> None:
    faults = numbers.aws.faults
    faults.requeue("FROM numbers", after_files=1)
    checked = faults.hold_queries(at="checked")
    query_id = numbers.start(f"UNLOAD (SELECT n FROM numbers) TO 's3://out/p/' {PARQUET}")
    eventually(lambda: faults.held(checked) == [query_id])
    queued = faults.hold_queries(at="queued")
    faults.release(checked)
    eventually(lambda: faults.held(queued) == [query_id])
    assert numbers.describe(query_id)["Status"]["State"] == "QUEUED"
    assert len(numbers.keys("p/")) == 1
    numbers.athena.stop_query_execution(QueryExecutionId=query_id)
    assert numbers.wait(query_id)["Status"]["State"] == "CANCELLED"
    assert numbers.keys(bucket="results") == []
