"""One caller's wish, as the protocol sees it: everything rendered and checked, nothing left to look up."""

from __future__ import annotations

from dataclasses import dataclass

from athena_assets.core import keys, policy, statement
from athena_assets.core.generation import UpstreamVersion, definition_fingerprint
from athena_assets.core.location import Location
from athena_assets.core.register import Publication, StartParameters
from athena_assets.core.slot import Slot
from athena_assets.core.target import OnConflict, Reuse, Target, UpstreamTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What `protocol.publish` needs.

    Args:
        id: identifies the wish; a retry of the same wish brings the same id.
        run: the Dagster run, if there is one; recorded so that others can name it.
        upstreams: the tables whose versions are looked up.
        given: upstream versions given by the caller; they are not looked up.
        deterministic: the query is known to give the same rows from the same data.
        guard_workgroups: where the guard looks, besides the workgroup that the query runs in.
        force: publish anew whatever is there; joins nobody.
        may_be_retry: an earlier try may have published under this id, however long ago.
        lease: seconds.
        patience: seconds for which an unanswered call is tried again.
    """

    id: str
    target: Target
    location: Location
    query: str
    partition: str | None
    upstreams: tuple[UpstreamTable, ...]
    given: tuple[UpstreamVersion, ...]
    deterministic: bool
    workgroup: str | None
    output_location: str | None
    guard_workgroups: tuple[str, ...] = ()
    force: bool = False
    may_be_retry: bool = False
    run: str | None = None
    lease: float = policy.LEASE_SECONDS
    patience: float = policy.PATIENCE_SECONDS

    @property
    def slot(self) -> Slot:
        return Slot(self.location, f"request {self.id}", self.patience)

    @property
    def definition(self) -> str:
        return definition_fingerprint(
            query=self.query,
            output=self.target.format,
            location=self.location,
            partition=self.partition,
            catalog=self.target.catalog,
            database=self.target.database,
        )

    @property
    def joins(self) -> bool:
        return self.target.on_conflict is OnConflict.JOIN

    @property
    def reuse(self) -> Reuse:
        return Reuse.NEVER if self.force else Reuse(self.target.reuse)

    def check(self) -> None:
        """Raises InvalidTarget for a rendered statement that Athena would refuse for its length."""
        self.start_parameters(keys.staging_prefix(self.location, 10**8, 99, "0" * 16), 10**8, 99)

    def start_parameters(self, staging: str, fence: int, attempt: int) -> StartParameters:
        """The exact parameters of this caller's StartQueryExecution for one attempt.

        Raises:
            InvalidTarget: if the rendered statement is longer than Athena takes.
        """
        text = statement.render_unload(
            self.query,
            Location(self.location.bucket, staging),
            self.target.format,
            statement.Label(str(self.location), fence, attempt),
        )
        try:
            statement.check_size(text)
        except statement.InvalidStatement as error:
            raise self.target.invalid("query", error.problem, error.next_step) from error
        return StartParameters(
            query=text,
            staging=staging,
            catalog=self.target.catalog,
            database=self.target.database,
            workgroup=self.workgroup,
            output_location=self.output_location,
        )


@dataclass(frozen=True, slots=True)
class Published:
    """This request's own publication.

    `adopted`: the query was started by an earlier owner of the slot and finished by this caller. `superseded`: others
    have published over it since. `attempts` counts submissions of this call; `waited` is seconds spent on others' work.
    `execution`: the ARN of the Step Functions execution that did it; None: this process.
    """

    publication: Publication
    attempts: int = 1
    waited: float = 0.0
    adopted: bool = False
    superseded: bool = False
    execution: str | None = None


@dataclass(frozen=True, slots=True)
class Reused:
    """Another request's publication of the same generation. `joined`: it was in flight when this request came."""

    publication: Publication
    waited: float = 0.0
    joined: bool = False
    superseded: bool = False
    execution: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """The target's policy is `skip`, and another caller holds the slot, or a query that is not ours writes there.

    Nothing was done and nothing is returned.
    """

    owner: str
    query_id: str | None


Outcome = Published | Reused | Skipped
