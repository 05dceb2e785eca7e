"""Whether the published files hold as many rows as the query gave."""

from dataclasses import dataclass

from athena_assets.aws.result_files import Unreadable
from athena_assets.core.location import Location
from athena_assets.core.target import Target
from athena_assets.errors import PublicationLost, SlotBusy
from athena_assets.unload import Publisher

MOST_BYTES = 256 * 2**20
"""Of a slot in a format whose files are read as a whole to count their rows: JSON, TEXTFILE, AVRO."""

_FOOTERS = ("PARQUET", "ORC")


@dataclass(frozen=True, slots=True)
class RowCount:
    """One slot. `counted`: rows in its files; `given`: rows that the query gave; None where that is not known.

    `problem`: why it was not counted. `moving`: because the result was being replaced meanwhile.
    """

    location: Location
    counted: int | None = None
    given: int | None = None
    problem: str | None = None
    moving: bool = False

    @property
    def differs(self) -> bool:
        return self.counted is not None and self.given is not None and self.counted != self.given

    @property
    def told(self) -> str:
        if self.differs:
            return f"{self.location} holds {self.counted} rows, and its query gave {self.given}."
        if self.problem is not None:
            return f"The rows of {self.location} were not counted: {self.problem}."
        if self.counted is not None and self.given is None:
            return f"{self.location} holds {self.counted} rows; Athena did not tell how many its query gave."
        return ""


def count(publisher: Publisher, target: Target, partition: str | None) -> RowCount:
    """Counts the rows of one slot's publication in its files.

    Raises:
        AccessDenied, ServiceUnavailable, RegisterUnreadable: S3 did not let us look.
    """
    location = target.location_for(partition)
    found = publisher.status(location)
    if found is None or found.publication is None:
        return RowCount(location)
    publication = found.publication
    try:
        published = publisher.read_manifest(target, partition=partition)
    except SlotBusy:
        return RowCount(location, problem="the result is being replaced", moving=True)
    except PublicationLost as error:
        return RowCount(location, problem=str(error))
    size = sum(file.size for file in published.files)
    if target.format.format not in _FOOTERS and size > MOST_BYTES:
        return RowCount(location, problem=f"{size} bytes of {target.format.format} would have to be read")
    try:
        counted = publisher.count_rows(target, published)
    except Unreadable as error:
        after = publisher.status(location)
        if after is None or after.publication != publication:
            return RowCount(location, problem="the result was replaced meanwhile", moving=True)
        return RowCount(location, problem=str(error))
    if published.fence != publication.fence:
        return RowCount(location, problem="the result was replaced meanwhile", moving=True)
    return RowCount(location, counted, publication.rows)
