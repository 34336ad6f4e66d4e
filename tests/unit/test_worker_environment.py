"""Who am I, where do checkpoints go, how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from relight.resilience.worker.environment import own_interval, read_environment, require_own_ranks
from relight.resilience.worker.errors import JoinRefused
from relight.resilience.worker.interval import EverySeconds, EverySteps, parse_interval
from relight.resilience.worker.world import World, find_world

AGENT = {
    "RELIGHT_AGENT_SOCKET": "/run/agent.sock",
    "RELIGHT_ATTEMPT": "7.0",
    "RELIGHT_GENERATION": "2",
    "RELIGHT_CHECKPOINT_DIR": "/ck",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20 steps", EverySteps(20)),
        ("1 step", EverySteps(1)),
        ("90s", EverySeconds(90)),
        ("10min", EverySeconds(600)),
        ("1.5 h", EverySeconds(5400)),
        ("auto", EverySeconds(600)),
    ],
)
def test_intervals(text: str, expected: object) -> None:
    assert parse_interval(text) == expected


@pytest.mark.parametrize("text", ["", "20", "0 steps", "1.5 steps", "0s", "ten min", "5 weeks"])
def test_a_misspelt_interval_is_refused_with_the_spellings(text: str) -> None:
    with pytest.raises(JoinRefused, match="20 steps"):
        parse_interval(text)


def test_the_world_of_the_environment() -> None:
    environ = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
    assert find_world(environ) == World(3, 4, 1)


def test_alone_without_any_variable() -> None:
    assert find_world({}) == World(0, 1, 0)


@pytest.mark.parametrize(
    "environ",
    [{"RANK": "1"}, {"RANK": "4", "WORLD_SIZE": "4"}, {"RANK": "x", "WORLD_SIZE": "4"}],
)
def test_a_damaged_world_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(JoinRefused, match="RANK"):
        find_world(environ)


def test_the_environment_overrules_the_program() -> None:
    environ = {"RELIGHT_CHECKPOINT_DIR": "/theirs", "RELIGHT_CHECKPOINT_INTERVAL": "5 steps"}
    environment = read_environment(environ, "/mine", "10min")
    assert (environment.directory, environment.interval) == (Path("/theirs"), "5 steps")
    environment = read_environment({}, "/mine", "10min")
    assert (environment.directory, environment.interval) == (Path("/mine"), "10min")
    assert environment.agent_socket is None


def test_an_agent_with_half_its_variables_is_refused() -> None:
    with pytest.raises(JoinRefused, match="RELIGHT_ATTEMPT"):
        read_environment({"RELIGHT_AGENT_SOCKET": "/run/agent.sock"}, None, None)


def test_ranks_that_something_in_between_has_started_are_refused() -> None:
    """Such as torchrun, below one agent: nobody would wait for the shards of all of them."""
    environment = read_environment(AGENT | {"RELIGHT_WORLD_SIZE": "2"}, None, None)
    require_own_ranks(environment, World(0, 2, 0))
    with pytest.raises(JoinRefused, match=r"of 16 ranks, and relight has started 2:.*torchrun"):
        require_own_ranks(environment, World(0, 16, 0))
    require_own_ranks(read_environment({"RELIGHT_WORLD_SIZE": "2"}, None, None), World(0, 16, 0))


def test_a_rank_below_torchrun_finds_its_own_agent() -> None:
    below = {name: AGENT[name] for name in AGENT if name != "RELIGHT_AGENT_SOCKET"}
    below |= {"RELIGHT_AGENT_SOCKETS": "2=@a,3=@b", "RELIGHT_WORLD_SIZE": "4"}
    environment = read_environment(below | {"RANK": "3"}, None, None)
    assert (environment.agent_socket, environment.below_starter) == ("@b", True)
    require_own_ranks(environment, World(3, 4, 1))
    with pytest.raises(JoinRefused, match="one of 8 ranks, and relight waits for 4: the command"):
        require_own_ranks(environment, World(3, 8, 1))
    with pytest.raises(JoinRefused, match="this is rank 1, and relight waits for ranks 2, 3 on"):
        read_environment(below | {"RANK": "1"}, None, None)
    with pytest.raises(JoinRefused, match=r"RANK is not set, .* command_per is node"):
        read_environment(below, None, None)


def test_under_an_agent_a_rank_decides_only_by_steps() -> None:
    by_steps = read_environment(AGENT, None, "20 steps")
    by_clock = read_environment(AGENT, None, "10min")
    assert own_interval(by_steps, World(0, 4, 0)) == EverySteps(20)
    assert own_interval(by_clock, World(0, 4, 0)) is None


def test_many_ranks_without_an_agent_have_no_common_clock() -> None:
    environment = read_environment({}, "/ck", "10min")
    assert own_interval(environment, World(0, 1, 0)) == EverySeconds(600)
    with pytest.raises(JoinRefused, match="20 steps"):
        own_interval(environment, World(0, 4, 0))


def test_states_of_8_gib_are_saved_in_the_background_unless_told_otherwise() -> None:
    assert read_environment(AGENT, None, None).staging_bytes == 8 * 1024**3
    told = AGENT | {"RELIGHT_CHECKPOINT_STAGING": "0"}
    assert read_environment(told, None, None).staging_bytes == 0


def test_an_amount_that_is_no_number_is_refused() -> None:
    with pytest.raises(JoinRefused, match="8GB"):
        read_environment(AGENT | {"RELIGHT_CHECKPOINT_STAGING": "8GB"}, None, None)
    with pytest.raises(JoinRefused, match="KEEP is '0': write how many"):
        read_environment(AGENT | {"RELIGHT_CHECKPOINT_KEEP": "0"}, None, None)
