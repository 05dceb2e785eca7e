"""Output formats: what Athena would reject is refused before it costs a query."""

import itertools

import pytest

from athena_assets.core.output import InvalidOutput, OutputFormat

# Athena user guide, "UNLOAD", written down a second time.
ALLOWED = {
    "PARQUET": {"GZIP", "SNAPPY", "ZSTD", "LZ4", "LZO", "NONE"},
    "ORC": {"ZLIB", "SNAPPY", "ZSTD", "LZ4", "NONE"},
    "AVRO": set(),
    "JSON": {"GZIP"},
    "TEXTFILE": {"GZIP"},
}
COMPRESSIONS = sorted({name for names in ALLOWED.values() for name in names} | {"BROTLI", "DEFLATE", ""})


def field_at_fault(*arguments: str | int | None) -> str | None:
    try:
        OutputFormat(*arguments)  # type: ignore[arg-type]
    except InvalidOutput as error:
        return error.field
    return None


def test_a_refusal_has_a_problem_and_a_next_step() -> None:
    with pytest.raises(InvalidOutput) as caught:
        OutputFormat("ORC", "GZIP")
    assert caught.value.problem == "'GZIP' is not available for ORC."
    assert caught.value.next_step == "Use one of ZLIB, SNAPPY, ZSTD, LZ4, NONE."


@pytest.mark.parametrize("name", ["CSV", "", "ION", "PARQUET ", "TEXT"])
def test_an_unknown_format_is_refused(name: str) -> None:
    assert field_at_fault(name) == "format"


@pytest.mark.parametrize(("name", "compression"), list(itertools.product(ALLOWED, COMPRESSIONS)))
def test_a_compression_is_accepted_where_athena_has_it(name: str, compression: str) -> None:
    expected = None if compression in ALLOWED[name] else "compression"
    assert field_at_fault(name, compression) == expected


@pytest.mark.parametrize(("name", "compression"), list(itertools.product(ALLOWED, [None, *COMPRESSIONS])))
def test_a_level_goes_with_zstd_in_parquet_only(name: str, compression: str | None) -> None:
    if compression is not None and compression not in ALLOWED[name]:
        expected: str | None = "compression"
    else:
        expected = None if (name, compression) == ("PARQUET", "ZSTD") else "compression_level"
    assert field_at_fault(name, compression, 3) == expected


@pytest.mark.parametrize(("level", "accepted"), [(-1, False), (0, False), (1, True), (22, True), (23, False)])
def test_a_level_is_between_1_and_22(level: int, accepted: bool) -> None:
    assert field_at_fault("PARQUET", "ZSTD", level) == (None if accepted else "compression_level")


@pytest.mark.parametrize("name", ALLOWED)
def test_a_delimiter_goes_with_textfile_only(name: str) -> None:
    assert field_at_fault(name, None, None, ",") == (None if name == "TEXTFILE" else "field_delimiter")


@pytest.mark.parametrize("delimiter", ["", ",,", "\\t", "ab"])
def test_a_delimiter_is_one_character(delimiter: str) -> None:
    assert field_at_fault("TEXTFILE", None, None, delimiter) == "field_delimiter"


def test_case_does_not_matter() -> None:
    assert OutputFormat("parquet", "zstd", 5) == OutputFormat("PARQUET", "ZSTD", 5)


@pytest.mark.parametrize(
    ("output", "properties"),
    [
        (OutputFormat(), (("format", "PARQUET"),)),
        (OutputFormat("ORC", "SNAPPY"), (("format", "ORC"), ("compression", "SNAPPY"))),
        (
            OutputFormat("PARQUET", "ZSTD", 5),
            (("format", "PARQUET"), ("compression", "ZSTD"), ("compression_level", 5)),
        ),
        (OutputFormat("AVRO"), (("format", "AVRO"),)),
        # Athena knows the property for PARQUET and ORC only; these two are gzip anyhow.
        (OutputFormat("JSON", "GZIP"), (("format", "JSON"),)),
        (OutputFormat("TEXTFILE", "GZIP", None, "|"), (("format", "TEXTFILE"), ("field_delimiter", "|"))),
    ],
)
def test_properties_come_in_a_fixed_order_without_defaults(
    output: OutputFormat, properties: tuple[tuple[str, str | int], ...]
) -> None:
    assert output.properties() == properties
