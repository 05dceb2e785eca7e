"""Every step of real callers, within bounds; what was explored is printed at the end of the run."""

from collections.abc import Callable

import pytest

from athena_assets_tests.simulation import guarded
from athena_assets_tests.simulation.explorer import Explorer
from athena_assets_tests.simulation.scenarios import LARGE, SMALL, A, scenario
from athena_assets_tests.simulation.states import Fault, Scenario

ORDINARY = {**SMALL, **guarded.SMALL}
LONG = {**LARGE, **guarded.LARGE}


def explored(wanted: Scenario, record_property: Callable[[str, object], None]) -> None:
    report = Explorer(wanted).explore()
    record_property("told", f"{wanted.invariants.mode}: {report}")
    assert report.violation is None, str(report)
    assert report.exhausted
    assert report.finished > 0


@pytest.mark.parametrize("name", ORDINARY)
def test_no_order_of_steps_violates_an_invariant(name: str, record_property: Callable[[str, object], None]) -> None:
    explored(ORDINARY[name](), record_property)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LONG)
def test_no_order_of_steps_violates_an_invariant_in_wider_bounds(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    explored(LONG[name](), record_property)


def test_states_that_differ_in_random_names_only_are_one_state() -> None:
    explorer = Explorer(scenario("any", A))
    assert explorer.explore().states == explorer.explore().states
    again = Explorer(scenario("any", A, crash=1)).explore()
    # Every crash begins anew with other ids; without the renaming each would be a tree of its own.
    assert again.states < 10 * explorer.explore().states


def test_every_kind_of_fault_is_in_some_scenario() -> None:
    explored_faults = {fault for make in (*SMALL.values(), *LARGE.values()) for fault in make().faults}
    assert explored_faults == set(Fault)
