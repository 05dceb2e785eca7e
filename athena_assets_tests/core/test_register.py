"""The register: a stored format that never changes silently, and every transition between its values."""

import json
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from athena_assets.core import register as transitions
from athena_assets.core.codec import SCHEMA, UnreadableRegister, decode, encode
from athena_assets.core.generation import UpstreamVersion
from athena_assets.core.manifest import Manifest, ManifestFile, RemovedFile
from athena_assets.core.register import (
    HISTORY,
    Attempt,
    Failure,
    FailureKind,
    GlueTable,
    Kept,
    Mode,
    ObjectVersion,
    Owner,
    Publication,
    PublishSettings,
    Register,
    Retired,
    StartParameters,
    State,
    Statistics,
    decode_register,
)
from athena_assets_tests.core.examples import (
    ATTEMPT,
    CLEANING,
    EARLIER,
    FAILURE,
    FREE,
    FREE_POINTING,
    FREE_PUBLISHED,
    KEPT,
    MANIFEST,
    OWNER,
    POINTING,
    PUBLICATION,
    PUBLISHING,
    REGISTERS,
    RETIRED,
    RUNNING,
    RUNNING_ATTEMPT,
    START,
    SUBMITTING,
)

GOLDEN = Path(__file__).parent / "golden"

# --- the stored format -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REGISTERS)
def test_a_register_is_stored_as_it_always_was(name: str) -> None:
    assert encode(REGISTERS[name]) == (GOLDEN / f"register-{name}.json").read_bytes()


@pytest.mark.parametrize("name", REGISTERS)
def test_a_stored_register_is_read_as_it_always_was(name: str) -> None:
    assert decode_register((GOLDEN / f"register-{name}.json").read_bytes()) == REGISTERS[name]


def test_there_is_a_golden_register_of_every_state() -> None:
    assert {each.state for each in REGISTERS.values()} == set(State)


def test_a_manifest_is_stored_and_read_as_it_always_was() -> None:
    stored = (GOLDEN / "manifest.json").read_bytes()
    assert encode(MANIFEST) == stored
    assert decode(stored, Manifest) == MANIFEST


numbers = st.integers(-(2**70), 2**70)
floats = st.floats(allow_nan=False, allow_infinity=False)
maybe_text = st.none() | st.text()
upstreams = st.builds(UpstreamVersion, st.text(), maybe_text, st.booleans())
starts = st.builds(StartParameters, st.text(), st.text(), st.text(), st.text(), maybe_text, maybe_text)
settings = st.builds(
    PublishSettings,
    mode=st.sampled_from(Mode),
    keep_previous=numbers,
    adopt_existing=st.booleans(),
    clean_after_failure=st.booleans(),
    empty_fails=st.booleans(),
    glue=st.none() | st.builds(GlueTable, st.text(), st.text(), st.text(), maybe_text, maybe_text),
    grace_period=floats,
)
attempts = st.builds(
    Attempt,
    number=numbers,
    generation=st.text(),
    definition=st.text(),
    request=st.text(),
    run=maybe_text,
    token=st.text(),
    starts=st.lists(starts, min_size=1, max_size=3).map(tuple),
    upstreams=st.lists(upstreams, max_size=3).map(tuple),
    reusable=st.booleans(),
    settings=settings,
    query_id=st.text(),
    accepted=st.just(0),
)
statistics = st.builds(Statistics, *(st.none() | numbers for _ in range(4)))
publications = st.builds(
    Publication,
    generation=st.text(),
    definition=st.text(),
    request=st.text(),
    run=maybe_text,
    query_id=st.text(),
    fence=st.integers(1, 2**40),
    attempt=numbers,
    manifest=st.text(),
    files=numbers,
    bytes=numbers,
    rows=st.none() | numbers,
    at=floats,
    reusable=st.booleans(),
    statistics=statistics,
    workgroup=maybe_text,
    lost=st.booleans(),
    restored=st.none() | numbers,
    directory=maybe_text,
)
# In no text above: a directory in use is never one that is retired.
retired = st.builds(Retired, st.just("\udcff/"), maybe_text, floats, st.none() | floats)
failures = st.builds(Failure, st.text(), st.text(), numbers, maybe_text, st.sampled_from(FailureKind), st.text())
owners = st.builds(Owner, st.text(), st.text(), numbers, st.text(), maybe_text)


@st.composite
def registers(draw: st.DrawFn) -> Register:
    state = draw(st.sampled_from(State))
    publication = draw(st.none() | publications)
    if state is State.PUBLISHING:
        publication = replace(draw(publications), lost=False)
    busy = state in (State.SUBMITTING, State.RUNNING, State.PUBLISHING)
    return Register(
        write_id=draw(st.text()),
        fence=draw(st.integers(2**40, 2**50)),
        state=state,
        lease=draw(st.floats(0.001, 1e6)),
        owner=draw(owners) if busy else None,
        attempt=draw(attempts) if busy else None,
        earlier_attempts=tuple(draw(st.lists(attempts, max_size=2))) if busy else (),
        publication=publication,
        history=tuple(draw(st.lists(publications, max_size=2))),
        kept=tuple(draw(st.lists(st.builds(Kept, publications, st.text()), max_size=2))),
        cleanup=tuple(draw(st.lists(st.builds(ObjectVersion, st.text(), st.text()), max_size=2))),
        retired=tuple(draw(st.lists(retired, max_size=2))),
        failure=draw(failures) if state is State.BLOCKED else draw(st.none() | failures),
    )


@given(registers())
def test_a_register_is_read_back_as_written(value: Register) -> None:
    body = encode(value)
    assert decode_register(body) == value
    assert encode(decode_register(body)) == body
    assert body.isascii()
    assert body.endswith(b"}\n")


manifests = st.builds(
    Manifest,
    slot=st.text(),
    publication=publications,
    staging=st.text(),
    files=st.lists(st.builds(ManifestFile, st.text(), st.text(), numbers, st.text()), max_size=3).map(tuple),
    removes=st.lists(st.builds(RemovedFile, st.text(), st.text(), numbers, maybe_text), max_size=3).map(tuple),
    replaces=st.lists(publications, max_size=2).map(tuple),
    settings=settings,
)


@given(manifests)
def test_a_manifest_is_read_back_as_written(value: Manifest) -> None:
    assert decode(encode(value), Manifest) == value


def stored(value: Any) -> dict[str, Any]:
    return json.loads(encode(value))  # type: ignore[no-any-return]


def body(content: object) -> bytes:
    return json.dumps(content).encode()


@pytest.mark.parametrize("schema", [0, 2, 99, -1, "1", None, [1], {}])
def test_an_unknown_schema_version_is_refused_not_guessed(schema: object) -> None:
    with pytest.raises(UnreadableRegister) as caught:
        decode_register(body({**stored(RUNNING), "schema": schema}))
    assert str(caught.value) == f"its schema version is {schema!r}; this version of athena_assets reads 1"
    with pytest.raises(UnreadableRegister, match="schema version"):
        decode(body({**stored(MANIFEST), "schema": schema}), Manifest)


@pytest.mark.parametrize("schema", [True, 1.0])
def test_a_schema_version_that_only_equals_ours_is_refused(schema: object) -> None:
    with pytest.raises(UnreadableRegister):
        decode_register(body({**stored(RUNNING), "schema": schema}))


def test_a_newer_schema_with_other_fields_is_called_newer_and_not_damaged() -> None:
    with pytest.raises(UnreadableRegister, match="schema version is 2"):
        decode_register(b'{"schema": 2, "whatever": []}')


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"register"',
        b"1",
        b"{}",
        b"\xff\xfe",
        b"<Error><Code>AccessDenied</Code></Error>",
        encode(RUNNING)[:-2],
        encode(RUNNING) * 2,
    ],
)
def test_what_is_no_register_is_refused(text: bytes) -> None:
    with pytest.raises(UnreadableRegister):
        decode_register(text)


def every_object(content: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The path of every JSON object in `content`."""
    if isinstance(content, dict):
        return [path, *(each for name, value in content.items() for each in every_object(value, (*path, name)))]
    if isinstance(content, list):
        return [each for index, value in enumerate(content) for each in every_object(value, (*path, index))]
    return []


def at(content: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        content = content[step]
    return content


POINTED = "marts/daily/00000007-01-00112233445566aa/"
FULL = replace(CLEANING, history=(EARLIER,), kept=(KEPT,), retired=(RETIRED,), failure=FAILURE)


@pytest.mark.parametrize("path", every_object(stored(FULL)), ids=str)
def test_an_extra_or_missing_field_is_refused_wherever_it_is(path: tuple[str | int, ...]) -> None:
    for name in (*at(stored(FULL), path), "surprise"):
        content = stored(FULL)
        holder = at(content, path)
        if name in holder:
            del holder[name]
        else:
            holder[name] = None
        with pytest.raises(UnreadableRegister):
            decode_register(body(content))


NULLABLE = {
    "run",
    "workgroup",
    "output_location",
    "version",
    "rows",
    "bytes_scanned",
    "queue_ms",
    "engine_ms",
    "total_ms",
    "query_id",
    "owner",
    "attempt",
    "publication",
    "failure",
    "accepted",
    "glue",
    "column",
    "value",
    "restored",
    "directory",
    "proof",
    "since",
}
WRONG: list[Any] = [None, True, 0, 1.5, "x", [], {}, [None], "free"]


def is_right(name: str, old: Any, new: Any) -> bool:
    """Whether `new` could stand in place of `old` as far as types go."""
    if new is None:
        return name in NULLABLE
    if name in ("lease", "at", "grace", "grace_period", "since"):
        return type(new) in (int, float) and (name != "lease" or new > 0)
    if name in ("mode", "kind"):
        return False
    if name == "state":
        return bool(new == "free")
    if name in ("owner", "attempt", "publication", "failure", "statistics", "settings", "glue") and isinstance(
        old, dict | None
    ):
        return False
    if old is None:
        return name in NULLABLE  # the example does not tell; the full one does
    if isinstance(old, list):
        return bool(new == [])
    return type(new) is type(old)


@pytest.mark.parametrize("path", every_object(stored(FULL)), ids=str)
def test_a_field_of_another_type_is_refused_wherever_it_is(path: tuple[str | int, ...]) -> None:
    for name, old in at(stored(FULL), path).items():
        for wrong in WRONG:
            if is_right(name, old, wrong):
                continue
            content = stored(FULL)
            at(content, path)[name] = wrong
            with pytest.raises(UnreadableRegister):
                decode_register(body(content))


def test_a_wrong_field_is_named_by_its_path() -> None:
    content = stored(FULL)
    content["attempt"]["starts"][0]["staging"] = 7
    with pytest.raises(UnreadableRegister) as caught:
        decode_register(body(content))
    assert str(caught.value) == "Register.attempt.starts[0].staging is not a str"


@pytest.mark.parametrize(
    "value",
    [
        replace(FREE, fence=0),
        replace(FREE, fence=-1),
        replace(FREE, owner=OWNER),
        replace(SUBMITTING, owner=None),
        replace(RUNNING, owner=None),
        replace(PUBLISHING, owner=None),
        replace(SUBMITTING, attempt=None),
        replace(RUNNING, attempt=None),
        replace(RUNNING, attempt=ATTEMPT),
        replace(PUBLISHING, publication=None),
        replace(FREE_POINTING, retired=(Retired(POINTED, None, 0.0),)),
    ],
)
def test_a_register_that_contradicts_itself_is_refused(value: Register) -> None:
    with pytest.raises(UnreadableRegister):
        decode_register(encode(value))


def test_an_unknown_state_is_refused() -> None:
    with pytest.raises(UnreadableRegister, match="'paused' is not a valid State"):
        decode_register(body({**stored(FREE), "state": "paused"}))


# --- transitions -----------------------------------------------------------------------------------------------------

NEXT = "00000000000000f1"


def pointing(attempt: Attempt) -> Attempt:
    """The attempt in pointer mode, with a directory of its own."""
    start = replace(START, staging=f"marts/daily/00000006-{attempt.number:02d}-00112233445566aa/")
    return replace(attempt, starts=(start,), settings=replace(attempt.settings, mode=Mode.POINTER, glue=None))


TAKER = Owner("fedcba9876543210", "worker-2", 4712, "wish-2")
SECOND_START = replace(START, staging="other/")
SECOND_ATTEMPT = replace(ATTEMPT, number=2, token="v" * 64)
LATER = replace(PUBLICATION, fence=RUNNING.fence)
POINTER_RUNNING = replace(
    RUNNING,
    attempt=pointing(RUNNING.current),
    earlier_attempts=tuple(pointing(each) for each in RUNNING.earlier_attempts),
    publication=replace(POINTING, fence=5),
)
LATER_POINTING = replace(LATER, directory=POINTER_RUNNING.current.staging)

Transition = Callable[[Register], Register]

TRANSITIONS: dict[str, tuple[Register, Transition, set[str]]] = {
    "acquired": (
        FREE_PUBLISHED,
        lambda before: transitions.acquired(before, NEXT, owner=TAKER, lease=30.0, attempt=ATTEMPT),
        {"fence", "state", "lease", "owner", "attempt"},
    ),
    "taken over while submitting": (
        SUBMITTING,
        lambda before: transitions.taken_over(before, NEXT, owner=TAKER, lease=30.0, start=SECOND_START),
        {"fence", "lease", "owner", "attempt"},
    ),
    "taken over while running": (
        RUNNING,
        lambda before: transitions.taken_over(before, NEXT, owner=TAKER, lease=30.0, start=None),
        {"fence", "lease", "owner"},
    ),
    "taken over while publishing": (
        PUBLISHING,
        lambda before: transitions.taken_over(before, NEXT, owner=TAKER, lease=30.0, start=None),
        {"fence", "lease", "owner"},
    ),
    "renewed": (RUNNING, lambda before: transitions.renewed(before, NEXT), set()),
    "running": (
        SUBMITTING,
        lambda before: transitions.running(before, NEXT, query_id="q", accepted=0),
        {"state", "attempt"},
    ),
    "attempted again": (
        replace(RUNNING, attempt=RUNNING_ATTEMPT, earlier_attempts=()),
        lambda before: transitions.attempted_again(before, NEXT, attempt=SECOND_ATTEMPT),
        {"state", "attempt", "earlier_attempts"},
    ),
    "committed": (
        replace(RUNNING, failure=FAILURE),
        lambda before: transitions.committed(before, NEXT, publication=LATER, backup=None),
        {"state", "publication", "history", "failure"},
    ),
    "committed with a backup": (
        RUNNING,
        lambda before: transitions.committed(before, NEXT, publication=LATER, backup="backup/"),
        {"state", "publication", "history", "kept"},
    ),
    "committed in place": (
        RUNNING,
        lambda before: transitions.committed_in_place(before, NEXT, publication=LATER),
        {"state", "owner", "attempt", "earlier_attempts", "publication", "history"},
    ),
    "restored": (
        FREE_PUBLISHED,
        lambda before: transitions.restored(
            before,
            NEXT,
            owner=TAKER,
            lease=30.0,
            publication=replace(KEPT.publication, fence=FREE.fence + 1, restored=KEPT.publication.fence),
            backup="backup/",
        ),
        {"fence", "state", "owner", "lease", "publication", "history", "kept"},
    ),
    "committed in place with a pointer": (
        POINTER_RUNNING,
        lambda before: transitions.committed_in_place(before, NEXT, publication=LATER_POINTING, backup=POINTED),
        {"state", "owner", "attempt", "earlier_attempts", "publication", "history", "kept", "retired"},
    ),
    "acquired while directories wait": (
        replace(FREE_POINTING, retired=(replace(RETIRED, since=None),)),
        lambda before: transitions.acquired(before, NEXT, owner=TAKER, lease=30.0, attempt=ATTEMPT, freed_at=1.8e9),
        {"fence", "state", "lease", "owner", "attempt", "retired"},
    ),
    "swept": (
        FREE_POINTING,
        lambda before: transitions.swept(before, NEXT, gone=frozenset({RETIRED.prefix}), freed_at=1.8e9),
        {"retired"},
    ),
    "cleaning": (
        RUNNING,
        lambda before: transitions.cleaning(before, NEXT, cleanup=(ObjectVersion("k", '"e"'),)),
        {"cleanup"},
    ),
    "blocked": (
        CLEANING,
        lambda before: transitions.blocked(before, NEXT, failure=FAILURE),
        {"state", "owner", "attempt", "earlier_attempts", "cleanup", "failure"},
    ),
    "repaired": (REGISTERS["blocked"], lambda before: transitions.repaired(before, NEXT), {"state", "failure"}),
    "released with fewer kept": (
        replace(FREE_PUBLISHED, state=State.PUBLISHING, owner=OWNER),
        lambda before: transitions.released(before, NEXT, kept=()),
        {"state", "owner", "kept"},
    ),
    "released": (
        replace(PUBLISHING, earlier_attempts=(RUNNING_ATTEMPT,)),
        lambda before: transitions.released(before, NEXT),
        {"state", "owner", "attempt", "earlier_attempts"},
    ),
    "released with a failure": (
        RUNNING,
        lambda before: transitions.released(before, NEXT, failure=FAILURE),
        {"state", "owner", "attempt", "earlier_attempts", "failure"},
    ),
    "marked lost": (
        PUBLISHING,
        lambda before: transitions.marked_lost(before, NEXT),
        {"state", "owner", "attempt", "publication"},
    ),
}


@pytest.mark.parametrize("name", TRANSITIONS)
def test_a_transition_changes_the_write_id_and_what_it_says(name: str) -> None:
    before, transition, changed = TRANSITIONS[name]
    after = transition(before)
    differing = {each.name for each in fields(Register) if getattr(before, each.name) != getattr(after, each.name)}
    assert differing == changed | {"write_id"}
    assert after.write_id == NEXT
    assert encode(after) != encode(before)


@pytest.mark.parametrize("name", TRANSITIONS)
def test_what_a_transition_gives_can_be_stored_and_read(name: str) -> None:
    before, transition, _ = TRANSITIONS[name]
    assert decode_register(encode(transition(before))) == transition(before)


@pytest.mark.parametrize("name", TRANSITIONS)
def test_the_fence_rises_with_a_change_of_owner_and_only_then(name: str) -> None:
    before, transition, _ = TRANSITIONS[name]
    new_owner = name == "restored" or name.startswith(("acquired", "taken over"))
    assert transition(before).fence == before.fence + (1 if new_owner else 0)


def test_every_transition_of_the_module_is_tried_here() -> None:
    named = {
        name
        for name, value in vars(transitions).items()
        if callable(value) and getattr(value, "__annotations__", {}).get("return") == "Register" and name[0] != "_"
    }
    tried = {name.split(" while")[0].split(" with")[0].replace(" ", "_") for name in TRANSITIONS}
    assert named - {"decode_register", "rebuilt"} == tried  # a rebuilt register has none before it


@pytest.mark.parametrize("publication", [None, PUBLICATION, replace(PUBLICATION, lost=True)])
def test_a_rebuilt_register_is_held_only_while_a_publication_is_rolled_forward(publication: Publication | None) -> None:
    retired = (transitions.Retired("published/t/00000002-01-0123456789abcdef/", EARLIER.manifest, 60.0),)
    rebuilt = transitions.rebuilt(
        NEXT,
        fence=1007,
        owner=TAKER,
        lease=30.0,
        publication=publication,
        history=(EARLIER,),
        kept=(KEPT,),
        retired=retired,
    )
    rolls = publication == PUBLICATION
    assert (rebuilt.state, rebuilt.owner) == ((State.PUBLISHING, TAKER) if rolls else (State.FREE, None))
    assert (rebuilt.publication, rebuilt.history, rebuilt.kept) == (publication, (EARLIER,), (KEPT,))
    assert rebuilt.retired == retired
    assert (rebuilt.write_id, rebuilt.fence, rebuilt.attempt) == (NEXT, 1007, None)
    assert decode_register(encode(rebuilt)) == rebuilt


def test_the_first_owner_of_a_slot_has_fence_one() -> None:
    assert transitions.acquired(None, NEXT, owner=OWNER, lease=60.0, attempt=ATTEMPT) == Register(
        write_id=NEXT, fence=1, state=State.SUBMITTING, lease=60.0, owner=OWNER, attempt=ATTEMPT, schema=SCHEMA
    )


def test_acquiring_records_the_attempt_ahead_and_keeps_an_old_failure_for_those_who_wait() -> None:
    after = transitions.acquired(
        replace(FREE_PUBLISHED, failure=FAILURE), NEXT, owner=TAKER, lease=30.0, attempt=ATTEMPT
    )
    assert (after.state, after.owner, after.attempt) == (State.SUBMITTING, TAKER, ATTEMPT)
    assert after.failure == FAILURE


def test_a_taker_of_a_submission_adds_its_parameters_behind_the_others() -> None:
    after = transitions.taken_over(SUBMITTING, NEXT, owner=TAKER, lease=30.0, start=SECOND_START)
    assert after.attempt == replace(ATTEMPT, starts=(START, SECOND_START))
    assert after.state is State.SUBMITTING
    again = transitions.taken_over(after, "00000000000000f2", owner=OWNER, lease=30.0, start=START)
    assert again.attempt is not None
    assert again.attempt.starts == (START, SECOND_START, START)


def test_an_accepted_query_is_noted_with_the_parameters_that_athena_took() -> None:
    probing = transitions.taken_over(SUBMITTING, NEXT, owner=TAKER, lease=30.0, start=SECOND_START)
    after = transitions.running(probing, "00000000000000f2", query_id="q-9", accepted=1)
    assert (after.current.accepted_query, after.current.staging) == ("q-9", "other/")
    assert after.current.token == ATTEMPT.token


def test_a_new_attempt_leaves_the_old_one_on_record() -> None:
    after = transitions.attempted_again(
        replace(RUNNING, attempt=RUNNING_ATTEMPT, earlier_attempts=(replace(ATTEMPT, number=0),)),
        NEXT,
        attempt=SECOND_ATTEMPT,
    )
    assert after.state is State.SUBMITTING
    assert after.attempt == SECOND_ATTEMPT
    assert after.earlier_attempts == (replace(ATTEMPT, number=0), RUNNING_ATTEMPT)


def test_a_commit_moves_the_previous_publication_to_the_head_of_the_history() -> None:
    before = replace(RUNNING, history=(replace(EARLIER, fence=3),))
    after = transitions.committed(before, NEXT, publication=LATER, backup=None)
    assert after.state is State.PUBLISHING
    assert after.publication == LATER
    assert after.history == (EARLIER, replace(EARLIER, fence=3))
    assert after.attempt == before.attempt


def test_a_commit_with_a_backup_keeps_what_it_replaces() -> None:
    before = replace(RUNNING, kept=(KEPT,))
    after = transitions.committed(before, NEXT, publication=LATER, backup="backup/5/")
    assert after.kept == (Kept(EARLIER, "backup/5/"), KEPT)
    assert transitions.committed(before, NEXT, publication=LATER, backup=None).kept == (KEPT,)


def test_a_restored_publication_is_no_longer_kept_and_the_present_one_is() -> None:
    publication = replace(KEPT.publication, fence=8, restored=3)
    after = transitions.restored(FREE_PUBLISHED, NEXT, owner=TAKER, lease=30.0, publication=publication, backup="b/")
    assert after.publication == publication
    assert after.kept == (Kept(PUBLICATION, "b/"),)


def test_the_first_commit_has_no_history() -> None:
    after = transitions.committed(replace(RUNNING, publication=None), NEXT, publication=LATER, backup=None)
    assert after.history == ()


def test_the_history_remembers_32_publications() -> None:
    assert HISTORY == 32
    state = replace(RUNNING, publication=None, fence=1)
    for fence in range(1, 41):
        state = replace(state, state=State.RUNNING, fence=fence)
        state = transitions.committed(
            state, f"{fence:016x}", publication=replace(PUBLICATION, fence=fence), backup=None
        )
    assert state.publication is not None
    assert state.publication.fence == 40
    assert [each.fence for each in state.history] == list(range(39, 7, -1))


def test_a_release_without_a_failure_keeps_the_recorded_one() -> None:
    after = transitions.released(replace(RUNNING, failure=FAILURE), NEXT)
    assert after.failure == FAILURE


def test_a_newer_failure_replaces_the_recorded_one() -> None:
    newer = replace(FAILURE, fence=9)
    assert transitions.released(replace(RUNNING, failure=FAILURE), NEXT, failure=newer).failure == newer


def test_a_lost_publication_stays_on_record_as_lost() -> None:
    after = transitions.marked_lost(PUBLISHING, NEXT)
    assert (after.state, after.owner, after.attempt) == (State.FREE, None, None)
    assert after.publication == replace(PUBLICATION, lost=True)
    assert after.history == PUBLISHING.history


WRONG_TRANSITIONS: list[Callable[[], Register]] = [
    *(
        lambda before=before: transitions.acquired(before, NEXT, owner=TAKER, lease=30.0, attempt=ATTEMPT)
        for before in (SUBMITTING, RUNNING, PUBLISHING, REGISTERS["blocked"])
    ),
    lambda: transitions.taken_over(FREE, NEXT, owner=TAKER, lease=30.0, start=None),
    lambda: transitions.taken_over(REGISTERS["blocked"], NEXT, owner=TAKER, lease=30.0, start=None),
    lambda: transitions.taken_over(RUNNING, NEXT, owner=TAKER, lease=30.0, start=START),
    lambda: transitions.renewed(FREE, NEXT),
    lambda: transitions.running(RUNNING, NEXT, query_id="q", accepted=0),
    lambda: transitions.running(FREE, NEXT, query_id="q", accepted=0),
    lambda: transitions.attempted_again(PUBLISHING, NEXT, attempt=SECOND_ATTEMPT),
    lambda: transitions.attempted_again(SUBMITTING, NEXT, attempt=replace(SECOND_ATTEMPT, number=1)),
    lambda: transitions.attempted_again(SUBMITTING, NEXT, attempt=replace(SECOND_ATTEMPT, token=ATTEMPT.token)),
    lambda: transitions.committed(SUBMITTING, NEXT, publication=LATER, backup=None),
    lambda: transitions.committed(PUBLISHING, NEXT, publication=LATER, backup=None),
    lambda: transitions.committed(RUNNING, NEXT, publication=replace(LATER, fence=RUNNING.fence - 1), backup=None),
    lambda: transitions.committed(replace(RUNNING, publication=LATER), NEXT, publication=LATER, backup=None),
    lambda: transitions.marked_lost(FREE, NEXT),
]


@pytest.mark.parametrize("transition", WRONG_TRANSITIONS)
def test_a_transition_from_the_wrong_state_is_a_bug_that_stops(transition: Callable[[], Register]) -> None:
    with pytest.raises(AssertionError):
        transition()


def test_an_encoded_register_has_the_fields_in_the_order_of_the_definition() -> None:
    assert list(json.loads(encode(FULL))) == list(asdict(FULL)) == [each.name for each in fields(Register)]


CONTRADICTIONS = {
    "accepted out of range": replace(RUNNING, attempt=replace(RUNNING_ATTEMPT, accepted=5)),
    "accepted negative": replace(RUNNING, attempt=replace(RUNNING_ATTEMPT, accepted=-2)),
    "running without a query id": replace(RUNNING, attempt=replace(RUNNING_ATTEMPT, query_id=None)),
    "submitting without parameters": replace(SUBMITTING, attempt=replace(ATTEMPT, starts=())),
    "free with an attempt": replace(FREE, attempt=ATTEMPT),
    "a publication above the fence": replace(FREE, publication=replace(PUBLICATION, fence=99)),
    "publishing what is lost": replace(PUBLISHING, publication=replace(PUBLICATION, lost=True)),
    "blocked without a failure": replace(REGISTERS["blocked"], failure=None),
    "a lease of nothing": replace(RUNNING, lease=0.0),
    "a negative lease": replace(RUNNING, lease=-1.0),
    "an endless lease": replace(RUNNING, lease=float("inf")),
    "a lease that is no number": replace(RUNNING, lease=float("nan")),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_what_no_transition_writes_is_refused(name: str) -> None:
    with pytest.raises(UnreadableRegister):
        decode_register(encode(CONTRADICTIONS[name]))


def test_numbers_and_nesting_beyond_python_are_refused() -> None:
    huge = encode(RUNNING).replace(b'"lease": 60.0', b'"lease": 1' + b"0" * 400)
    for hostile in (huge, b"[" * 100_000):
        with pytest.raises(UnreadableRegister):
            decode_register(hostile)


# --- directories of pointer mode -------------------------------------------------------------------------------------


def everywhere(register: Register) -> set[str]:
    return register.directories.keys() | {each.prefix for each in register.retired}


@pytest.mark.parametrize("keep", [0, 1, 2])
@pytest.mark.parametrize("lost", [False, True])
def test_no_directory_is_forgotten_and_none_in_use_is_retired(keep: int, lost: bool) -> None:
    settings = replace(POINTER_RUNNING.current.settings, keep_previous=keep, grace_period=7.0)
    running = replace(
        POINTER_RUNNING,
        attempt=replace(POINTER_RUNNING.current, settings=settings),
        publication=replace(POINTING, fence=5, lost=lost),
        retired=(RETIRED,),
    )
    backup = None if lost else POINTED
    for after in (
        transitions.committed_in_place(running, NEXT, publication=LATER_POINTING, backup=backup),
        transitions.committed(running, NEXT, publication=LATER_POINTING, backup=backup),
        transitions.released(running, NEXT, failure=FAILURE),
        transitions.attempted_again(running, NEXT, attempt=replace(SECOND_ATTEMPT, number=3)),
    ):
        assert everywhere(running) <= everywhere(after)
        assert not after.directories.keys() & {each.prefix for each in after.retired}
        assert decode_register(encode(after)) == after
    done = transitions.committed_in_place(running, NEXT, publication=LATER_POINTING, backup=backup)
    retired = {each.prefix: each for each in done.retired}
    assert (POINTED in retired) == (lost or keep == 0)
    if keep == 0 and not lost:
        assert retired[POINTED].grace == 7.0
        assert retired[POINTED].proof == POINTING.manifest
    failed = retired["marts/daily/00000006-01-00112233445566aa/"]
    assert (failed.proof, failed.grace, failed.since) == (None, 0.0, None)


def test_a_directory_without_a_date_gets_that_of_the_write_that_retired_it() -> None:
    undated = replace(FREE_POINTING, retired=(RETIRED, replace(RETIRED, prefix="x/", since=None)))
    after = transitions.acquired(undated, NEXT, owner=TAKER, lease=30.0, attempt=ATTEMPT, freed_at=1.8e9)
    assert [each.since for each in after.retired] == [RETIRED.since, 1.8e9]
