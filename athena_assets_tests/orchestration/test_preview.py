"""What a preview shows, whatever stands in the rows."""

import re

from hypothesis import given
from hypothesis import strategies as st

from athena_assets.aws.result_files import MOST_COLUMNS, Sample
from athena_assets.orchestration.preview import WIDEST, markdown


def test_rows_are_a_table_and_null_is_not_an_empty_text() -> None:
    assert markdown(Sample(None, ("n", "name"), (("1", "a"), ("2", None), ("3", "")))) == (
        "| n | name |\n| --- | --- |\n| 1 | a |\n| 2 | *NULL* |\n| 3 |  |"
    )


def test_a_result_without_rows_has_no_preview() -> None:
    assert markdown(Sample(None, ("n",), ())) is None


def test_long_values_and_many_columns_are_cut_and_said_so() -> None:
    names = tuple(f"c{index}" for index in range(MOST_COLUMNS + 2))
    shown = markdown(Sample(None, names, (("x" * 1_000,) * len(names),), left_out=3))
    assert shown is not None
    assert "x" * (WIDEST - 1) + "…" in shown
    assert "x" * WIDEST not in shown
    assert shown.splitlines()[2].count("…") == MOST_COLUMNS
    assert shown.endswith("5 more columns are not shown.")


def test_a_line_shorter_than_the_others_is_filled() -> None:
    assert markdown(Sample(None, ("a", "b"), (("1",),))) == "| a | b |\n| --- | --- |\n| 1 | *NULL* |"


def test_markdown_and_html_in_a_value_are_shown_as_text() -> None:
    shown = markdown(Sample(None, ("v",), (("<b>|[x](http://y)\n`z`",),)))
    assert shown is not None
    assert shown.splitlines()[2] == r"| &lt;b&gt;\|\[x\]\(http\://y\) \`z\` |"


@given(st.lists(st.text(), min_size=1, max_size=3), st.lists(st.text(), min_size=1, max_size=3))
def test_no_text_breaks_out_of_its_cell(names: list[str], values: list[str]) -> None:
    width = len(names)
    shown = markdown(Sample(None, tuple(names), (tuple(values[:width]),)))
    assert shown is not None
    lines = shown.split("\n")
    assert len(lines) == 3
    for line in lines:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == width + 1
        assert "<" not in line
