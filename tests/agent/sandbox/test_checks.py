"""The properties of the sandbox that `checks.py` lists, each at both levels of protection."""

from collections.abc import Iterator

import pytest

from openmaia.agent.sandbox import Sandbox, SandboxLevel
from openmaia.agent.sandbox.policy import best_level
from tests.agent.sandbox.__main__ import LEVELS, TABLE, Victim, holds, table
from tests.agent.sandbox.checks import CHECKS, Check
from tests.agent.sandbox.conftest import Agent, make


@pytest.fixture(scope="module", params=LEVELS)
def shared(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    if request.param is SandboxLevel.FULL and best_level()[0] is not SandboxLevel.FULL:
        pytest.skip(f"full protection is not to be had here: {best_level()[1]}")
    with make(request.param) as sandbox:
        assert sandbox.level is request.param
        yield sandbox


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Victim:
    return Victim(tmp_path_factory.mktemp("victim"))


@pytest.mark.parametrize("check", CHECKS, ids=[check.name for check in CHECKS])
def test_check(agent: Agent, victim: Victim, check: Check):
    if check.needs_namespaces and not agent.sandbox.hides_files:
        pytest.skip("user namespaces are not allowed here")
    ended = holds(agent, victim, check)
    assert ended == "", ended
    victim.assert_untouched()


def test_checks_are_distinct_and_many():
    assert len({check.name for check in CHECKS}) == len(CHECKS) >= 100


def test_table_in_the_documentation_lists_every_check():
    held = {check.name: dict.fromkeys(LEVELS, True) for check in CHECKS}
    assert TABLE.read_text() == table(held), "python -m tests.agent.sandbox writes it anew"
