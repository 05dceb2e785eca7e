"""Effects and answers in a few words, for the traces that people read."""

from __future__ import annotations

from typing import Any

from athena_assets.core import effects, keys
from athena_assets_tests.simulation.world import decoded


def short(name: str) -> str:
    return f"{name.lstrip('0')[:8] or '0'}"


def say(value: Any) -> str:
    """An effect or an answer in a few words."""
    match value:
        case effects.WriteObject(key, body, if_match):
            if not key.endswith("/register.json"):
                return f"write {tail(key)}"
            after = decoded(body)
            return f"write register ({after.state}, fence {after.fence}, {'if unchanged' if if_match else 'if absent'})"
        case effects.ReadObject(key):
            return f"read {tail(key)}"
        case effects.ObjectRead(body):
            return "found"
        case effects.ListObjects(prefix):
            return f"list {prefix}"
        case effects.HeadObject(key):
            return f"head {tail(key)}"
        case effects.CopyObject(source, _, _, destination):
            return f"copy {tail(source)} to {tail(destination)}"
        case effects.DeleteObject(key):
            return f"delete {tail(key)}"
        case effects.AtOnce(parts):
            return f"{len(parts)} at once, such as {say(parts[0])}" if parts else "nothing at once"
        case effects.StartQuery(parameters, token):
            return f"start query into {tail(parameters.staging)} with token {short(token)}"
        case effects.PollQuery(query_id):
            return f"poll {short(query_id)}"
        case effects.LookForQueries(workgroup):
            return f"look what runs in {workgroup}"
        case effects.QueriesFound(queries):
            return f"{', '.join(short(each.query_id) for each in queries) or 'nothing'} runs"
        case effects.StopQuery(query_id):
            return f"stop {short(query_id)}"
        case effects.ReadPointer(table):
            return f"read where {table} points"
        case effects.MovePointer(table, location, _, fence):
            return f"point {table} at {tail(location)}, fence {fence}"
        case effects.Pointer():
            return f"at fence {value.fence}"
        case effects.QueryStarted(query_id):
            return f"query {short(query_id)}"
        case effects.QueryStatus(state):
            return str(state)
        case effects.Refused(status, code):
            return f"{status} {code}"
        case str():
            return str(value)
        case BaseException():
            return f"{type(value).__name__}: {value}"
        case tuple():
            return f"{len(value)} found"
    return type(value).__name__


def tail(key: str) -> str:
    return key.removeprefix(keys.CONTROL_PREFIX).partition("/")[2] if key.startswith(keys.CONTROL_PREFIX) else key
