"""S3 locations: one place has one name, and whatever could give it two is refused, never rewritten."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

MAX_QUOTED_BYTES = 800  # of the percent-quoted path; the rest of S3's 1,024 is for our own key names

# Bucket naming rules of the S3 user guide. Access point aliases end in "-s3alias"; "--ol-s3", "--x-s3" and "--table-s3"
# mark Object Lambda, directory and table buckets: each would be a second name, or a store without our guarantees.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_FOREIGN_SUFFIXES = ("-s3alias", "--ol-s3", "--x-s3", "--table-s3", ".mrap")
_FOREIGN_PREFIXES = ("xn--", "sthree-", "amzn-s3-demo-")
_IP_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_REFUSED_CHARACTERS = frozenset("'\"`\\?#*{}")


class InvalidLocation(ValueError):
    """Why a text is not a location that we accept: `problem`, and `next_step`."""

    def __init__(self, problem: str, next_step: str) -> None:
        super().__init__(f"{problem} {next_step}")
        self.problem = problem
        self.next_step = next_step


@dataclass(frozen=True, slots=True)
class Location:
    """A bucket and a key prefix that ends in exactly one slash. Compare with `==`; nested with `contains`."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def quoted(self) -> str:
        """The prefix as one path segment: percent-quoted, injective, without its trailing slash."""
        return quote(self.prefix[:-1], safe="-_.~=")

    @property
    def ancestors(self) -> tuple[Location, ...]:
        """Every location that contains this one, but itself; the outermost first."""
        segments = self.prefix[:-1].split("/")
        return tuple(Location(self.bucket, "/".join(segments[:count]) + "/") for count in range(1, len(segments)))

    def contains(self, other: Location) -> bool:
        """True for the same location and for every descendant of this one."""
        return self.bucket == other.bucket and other.prefix.startswith(self.prefix)

    def overlaps(self, other: Location) -> bool:
        return self.contains(other) or other.contains(self)


def parse_location(text: str) -> Location:
    """Reads `s3://bucket/path/`; a missing trailing slash is added, nothing else is changed.

    Raises:
        InvalidLocation: for everything that could give one place two names, and for the bucket root.
    """
    if text.startswith("arn:"):
        raise InvalidLocation(f"{text!r} is an ARN.", "Name the bucket itself: s3://bucket/path/.")
    scheme, separator, rest = text.partition("://")
    if not separator or scheme != "s3":
        raise InvalidLocation(f"{text!r} does not begin with s3://.", "Write s3://bucket/path/.")
    bucket, _, path = rest.partition("/")
    foreign = (
        bucket.endswith(_FOREIGN_SUFFIXES) or bucket.startswith(_FOREIGN_PREFIXES) or _IP_ADDRESS.fullmatch(bucket)
    )
    if not _BUCKET.fullmatch(bucket) or ".." in bucket or foreign:
        raise InvalidLocation(
            f"{bucket!r} is not the name of a general purpose bucket.",
            "Use the bucket's own name, not an access point or alias.",
        )
    if not path.strip("/"):
        raise InvalidLocation(
            f"{text!r} is a bucket's root.", "Give the result a prefix of its own: s3://bucket/path/."
        )
    _check_characters(text)
    prefix = path if path.endswith("/") else path + "/"
    for segment in prefix[:-1].split("/"):
        if segment in ("", ".", ".."):
            raise InvalidLocation(
                f"{text!r} has the path segment {segment!r}.",
                "S3 takes it literally and other tools do not: remove it.",
            )
    location = Location(bucket, prefix)
    if len(location.quoted) > MAX_QUOTED_BYTES:
        raise InvalidLocation(
            f"the path is {len(location.quoted)} bytes once quoted; the limit is {MAX_QUOTED_BYTES}.", "Shorten it."
        )
    return location


def _check_characters(text: str) -> None:
    for character in text:
        if not " " <= character <= "~":
            raise InvalidLocation(
                f"{text!r} has the character {character!r}.", "Use printable ASCII characters only in a location."
            )
        if character in _REFUSED_CHARACTERS:
            raise InvalidLocation(f"{text!r} has the character {character}.", "Choose a path without it.")
