"""Athena's data manifest in, our manifest out.

Our manifest is immutable and is written before the commit names it. It is also the plan of the swap: literal keys with
ETags, so that whoever rolls a publication forward does exactly the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from athena_assets.core import keys
from athena_assets.core.codec import SCHEMA
from athena_assets.core.effects import ListedObject
from athena_assets.core.keys import published_name
from athena_assets.core.location import Location
from athena_assets.core.register import Publication, PublishSettings


class InvalidResult(ValueError):
    """The data manifest can't be trusted as the list of the query's files."""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file of the result: where the query put it, and where it is published."""

    source: str
    source_etag: str
    size: int
    key: str


@dataclass(frozen=True, slots=True)
class RemovedFile:
    """A file that this publication replaces, as it stood when the plan was made, and where it is kept, if it is."""

    key: str
    etag: str
    size: int
    backup: str | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One published result. `replaces`: the publications before it, newest first, as its register remembered them."""

    slot: str
    publication: Publication
    staging: str
    files: tuple[ManifestFile, ...]
    removes: tuple[RemovedFile, ...]
    replaces: tuple[Publication, ...]
    settings: PublishSettings
    schema: int = SCHEMA

    def copy_metadata(self, index: int) -> dict[str, str]:
        """What our copy of file `index` carries: the proof that we wrote that object."""
        return {_SLOT: self.slot, _SOURCE: self._mark(index)}

    def is_copy(self, index: int, size: int, metadata: dict[str, str]) -> bool:
        return size == self.files[index].size and metadata == {**metadata, **self.copy_metadata(index)}

    def _mark(self, index: int) -> str:
        own = self.publication
        return f"{own.fence}-{own.attempt}-{index}-{self.files[index].source_etag.strip(chr(34))}"


_SLOT, _SOURCE = "athena-assets-slot", "athena-assets-source"


def owner_of(metadata: dict[str, str], key: str) -> str | None:
    """The slot that wrote an object; None for a stranger's, also if it is a copy that carries our metadata along.

    Our own copy has the name that its mark says; who copies one of our files gives it another, or keeps it elsewhere.
    """
    fence, _, rest = metadata.get(_SOURCE, "").partition("-")
    attempt, _, rest = rest.partition("-")
    index = rest.partition("-")[0]
    if _SLOT not in metadata or not (fence.isdecimal() and attempt.isdecimal() and index.isdecimal()):
        return None
    name = key.rpartition("/")[2]
    return metadata[_SLOT] if name.startswith(published_name(int(fence), int(attempt), int(index))) else None


def parse_data_manifest(body: bytes) -> tuple[str, ...]:
    """The URIs in Athena's data manifest: one `s3://` URI a line, no header. Raises InvalidResult."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidResult("the data manifest is not UTF-8") from error
    return tuple(line for line in text.replace("\r\n", "\n").split("\n") if line)


def match_files(
    uris: tuple[str, ...], listing: tuple[ListedObject, ...], location: Location, staging: str
) -> tuple[ListedObject, ...]:
    """The listed objects that the data manifest names, in key order.

    An object under staging that the manifest does not name is a leftover of an internal restart or of a twin query; it
    is not part of the result.

    Raises:
        InvalidResult: for a URI outside staging, one that is not there, or one named twice.
    """
    root = f"s3://{location.bucket}/"
    found = {each.key: each for each in listing}
    files: dict[str, ListedObject] = {}
    for uri in uris:
        key = uri.removeprefix(root)
        if not uri.startswith(root + staging):
            raise InvalidResult(f"the data manifest names {uri}, which is not under {root}{staging}")
        if key not in found:
            raise InvalidResult(f"the data manifest names {uri}, which does not exist")
        if key in files:
            raise InvalidResult(f"the data manifest names {uri} twice")
        files[key] = found[key]
    return tuple(files[key] for key in sorted(files))


def planned_files(
    files: tuple[ListedObject, ...], location: Location, staging: str, fence: int, attempt: int
) -> tuple[ManifestFile, ...]:
    return tuple(
        ManifestFile(
            each.key,
            each.etag,
            each.size,
            keys.published_key(location, fence, attempt, index, each.key.removeprefix(staging)),
        )
        for index, each in enumerate(files)
    )
