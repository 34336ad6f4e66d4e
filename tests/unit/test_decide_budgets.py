"""What each cause may cost before a run ends, and when evidence makes a node one to avoid."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from promises import step

from relight.resilience.decide.actions import (
    Action,
    ExcludeNode,
    Finish,
    Outcome,
    RequestAllocation,
    StartRanks,
)
from relight.resilience.decide.causes import FaultCause, StopCause
from relight.resilience.decide.events import (
    AllocationArranged,
    AttemptStarted,
    CheckpointCommitted,
    CheckpointRefused,
    Event,
    PreflightFinished,
    RankExited,
    RanksStarted,
    RanksStopped,
    StopRequested,
)
from relight.resilience.decide.policy import Policy
from relight.resilience.decide.replay import failures
from relight.resilience.decide.rules import Blame, Budget, Rule
from relight.resilience.decide.state import Exclusion, Phase, State
from relight.resilience.decide.ways_back import to_avoid


def rule(word: str, cause: FaultCause, blame: Blame, budget: Budget) -> Rule:
    return Rule(
        id=word,
        cause=cause,
        lines=(re.compile(word),),
        blame=blame,
        budget=budget,
        advice=f"think about {word}",
    )


RULES = (
    rule("gpu", FaultCause.GPU_HARDWARE, Blame.NODE, Budget.COUNTED),
    rule("crash", FaultCause.CRASHED, Blame.SUSPECT, Budget.COUNTED),
    rule("full", FaultCause.DISK_FULL, Blame.NONE, Budget.STOP),
    rule("typo", FaultCause.USER_ERROR, Blame.NONE, Budget.START_UP),
    rule("memory", FaultCause.HOST_MEMORY, Blame.NONE, Budget.ONCE),
    rule("port", FaultCause.RENDEZVOUS, Blame.NONE, Budget.FREE),
)
POLICY = Policy(nodes=2, tasks_per_node=1, rules=RULES)
SAVED = CheckpointCommitted(step=5, generation=1)


class Story:
    """A run of two nodes that is told what happens to it."""

    def __init__(self, *nodes: str, policy: Policy = POLICY) -> None:
        self.policy = policy
        self.state = State()
        self.last: tuple[Action, ...] = ()
        self.begin(*(nodes or ("n1", "n2", "n3")))

    def begin(self, *nodes: str, attempt: str = "7.0") -> None:
        self.tell(
            AttemptStarted(
                attempt=attempt, job_id="7", restart_count=0, nodes=nodes, batch_node=nodes[0]
            ),
            PreflightFinished(bad={}),
        )

    def tell(self, *events: Event) -> None:
        for event in events:
            self.state, self.last = step(self.state, event, self.policy, 0.0)

    def run(self) -> None:
        active = self.state.active
        self.tell(RanksStarted(generation=self.state.generation, nodes=active, world_size=2))

    def fail(self, word: str, rank: int = 0) -> None:
        """The generation at hand runs and fails by this word."""
        self.run()
        generation, node = self.state.generation, self.state.active[rank]
        self.tell(
            RankExited(generation=generation, rank=rank, node=node, code=1, tail=(word,)),
            RanksStopped(generation=generation),
        )

    def fail_until_the_end(self, word: str) -> tuple[int, Finish]:
        """How many generations there were, and how it ended."""
        generations = 0
        while self.state.phase is Phase.STARTING:
            generations += 1
            self.fail(word)
        end = self.last[-1]
        assert isinstance(end, Finish), self.last
        return generations, end

    @property
    def excluded(self) -> list[str]:
        return [action.node for action in self.last if isinstance(action, ExcludeNode)]


@pytest.mark.parametrize(("word", "counted"), [("typo", {}), ("crash", {"crashed": 1})])
def test_a_mistake_in_the_program_is_no_failure_by_chance(
    word: str, counted: dict[str, int]
) -> None:
    story = Story()
    story.run()
    story.tell(SAVED, RankExited(generation=1, rank=0, node="n1", code=1, tail=(word,)))
    before = story.state
    story.tell(RanksStopped(generation=1))
    assert failures(before, story.state) == counted
    assert story.state.past.failures == sum(counted.values())


@pytest.mark.parametrize(
    ("word", "generations", "outcome", "code"),
    [
        ("what", 4, Outcome.FAILED, 1),
        ("full", 1, Outcome.STOPPED, 93),
        ("typo", 2, Outcome.FAILED, 1),
        ("memory", 2, Outcome.FAILED, 1),
        ("port", 4, Outcome.STOPPED, 93),
    ],
)
def test_each_cause_has_its_budget(
    word: str, generations: int, outcome: Outcome, code: int
) -> None:
    tries, end = Story().fail_until_the_end(word)
    assert (tries, end.outcome, end.exit_code) == (generations, outcome, code)


def test_a_resume_by_hand_begins_the_budgets_anew() -> None:
    story = Story()
    story.fail_until_the_end("port")
    again = AttemptStarted(
        attempt="7.1", job_id="7", restart_count=1, nodes=("n1", "n2"), batch_node="n1"
    )
    story.tell(again)
    assert isinstance(story.last[-1], Finish), "nothing was repaired"
    story.tell(replace(again, resumed=True), PreflightFinished(bad={}))
    assert story.fail_until_the_end("what")[0] == 4


def test_the_end_says_cause_rule_and_advice() -> None:
    _, end = Story().fail_until_the_end("full")
    assert end.cause == "disk full"
    assert "rule full" in end.reason
    assert "think about full" in end.reason


def test_after_the_first_checkpoint_an_error_is_like_any_other() -> None:
    story = Story()
    story.run()
    story.tell(SAVED)
    story.fail("typo")
    tries, _ = story.fail_until_the_end("typo")
    assert 1 + tries == 4


def test_no_failures_allowed_means_none() -> None:
    story = Story(policy=Policy(nodes=2, tasks_per_node=1, rules=RULES, failures=0))
    assert story.fail_until_the_end("memory")[0] == 1


def test_evidence_that_names_the_node_excludes_it_at_once_and_costs_nothing() -> None:
    story = Story()
    story.fail("gpu")
    assert story.excluded == ["n1"]
    start = story.last[-1]
    assert isinstance(start, StartRanks)
    assert (start.nodes, start.delay_s) == (("n2", "n3"), 0.0)
    assert (story.state.failures, story.state.idle_restarts) == (0, 0)


def test_without_a_spare_a_guilty_node_costs_the_allocation() -> None:
    story = Story("n1", "n2")
    story.fail("gpu")
    move = story.last[-1]
    assert isinstance(move, RequestAllocation)
    assert move.exclude == ("n1",)


def test_guilty_nodes_have_a_budget_of_their_own() -> None:
    story = Story(*(f"n{number}" for number in range(20)))
    tries, end = story.fail_until_the_end("gpu")
    assert tries == POLICY.node_failures + 1
    assert (end.outcome, end.exit_code) == (Outcome.STOPPED, 93)
    assert "because of nodes" in end.reason


def test_a_guilty_node_is_remembered_when_the_job_is_preempted_too() -> None:
    story = Story()
    story.run()
    failed = RankExited(generation=1, rank=0, node="n1", code=1, tail=("gpu",))
    preempted = StopRequested(cause=StopCause.PREEMPTED, kill_at=9.0, evidence="x")
    arranged = AllocationArranged(mode="successor", job_id="8")
    story.tell(failed, preempted, arranged, RanksStopped(generation=1))
    move = story.last[-1]
    assert isinstance(move, RequestAllocation)
    assert move.exclude == ("n1",)


def test_a_second_crash_on_one_node_only_makes_it_one_to_avoid() -> None:
    story = Story()
    story.fail("crash", rank=1)
    assert story.excluded == []
    story.fail("crash", rank=1)
    assert story.excluded == ["n2"]


def test_a_crash_that_was_seen_elsewhere_is_the_programs() -> None:
    story = Story()
    for rank in (0, 1, 1):
        story.fail("crash", rank)
        assert story.excluded == []


def test_a_suspicion_does_not_cost_the_allocation() -> None:
    story = Story("n1", "n2")
    for _ in range(3):
        story.fail("crash")
        assert story.excluded == []
        assert isinstance(story.last[-1], StartRanks)


def test_what_is_known_least_well_of_is_forgotten_first() -> None:
    strong = Exclusion(node="n1", cause="GPU lost", evidence="fallen off the bus")
    weak = Exclusion(node="n2", cause="crashed", evidence="the second time there")
    slow = Exclusion(node="n3", cause="straggler", evidence="twice the time")
    state = State(excluded=(strong, weak), last_choice=(slow,))
    assert to_avoid(state) == ("n3", "n2", "n1")
    begin = AttemptStarted(
        attempt="7.1", job_id="7", restart_count=1, nodes=("n1", "n2"), batch_node="n1"
    )
    policy = Policy(nodes=1, tasks_per_node=1, preflight=False)
    after, (start,) = step(state, begin, policy, 0.0)
    assert isinstance(start, StartRanks)
    assert (start.nodes, after.excluded_nodes) == (("n2",), ("n1",))


def test_marks_outlive_an_attempt() -> None:
    story = Story()
    story.fail("crash")
    story.begin("n1", "n2", "n3", attempt="7.1")
    story.fail("crash")
    assert story.excluded == ["n1"]


def preempt(story: Story, *, saves: bool) -> None:
    """One attempt that is preempted, and the request for the next one."""
    story.run()
    generation = story.state.generation
    story.tell(StopRequested(cause=StopCause.PREEMPTED, kill_at=9.0, evidence="x"))
    if saves:
        newer = story.state.committed_step + 1
        story.tell(CheckpointCommitted(step=newer, generation=generation))
    story.tell(RanksStopped(generation=generation))


def preempt_often(*, first_save: bool, saves: bool) -> Story:
    story = Story()
    if first_save:
        story.run()
        story.tell(SAVED)
    for number in range(12):
        preempt(story, saves=saves)
        if story.state.phase is Phase.ENDED:
            break
        story.tell(AllocationArranged(mode="requeue", job_id="7"))
        story.begin("n1", "n2", attempt=f"7.{number + 1}")
    return story


def test_preemptions_are_free_while_progress_is_made() -> None:
    assert preempt_often(first_save=True, saves=True).state.phase is Phase.STARTING


def test_preemptions_without_progress_end_the_run() -> None:
    story = preempt_often(first_save=True, saves=False)
    end = story.last[-1]
    assert isinstance(end, Finish)
    assert (end.outcome, end.exit_code, end.cause) == (Outcome.STOPPED, 93, "preempted")


def test_a_program_that_saves_nothing_through_us_may_be_preempted_for_ever() -> None:
    assert preempt_often(first_save=False, saves=False).state.phase is Phase.STARTING


def test_supervisors_that_vanish_without_progress_end_the_run() -> None:
    story = Story()
    story.run()
    story.tell(SAVED)
    for number in range(3):
        story.begin("n1", "n2", attempt=f"7.{number + 1}")
        assert story.state.phase is Phase.STARTING
    story.begin("n1", "n2", attempt="7.9")
    assert story.state.phase is Phase.ENDED


def test_a_checkpoint_that_became_valid_only_at_the_next_start_is_progress() -> None:
    story = Story()
    story.fail("what")
    assert story.state.failures == 1
    story.tell(RanksStarted(generation=2, nodes=story.state.active, world_size=2, restored_step=9))
    assert (story.state.committed_step, story.state.failures) == (9, 0)


def test_damaged_checkpoints_are_free_but_not_for_ever() -> None:
    story = Story()
    for turn in range(4):
        story.run()
        generation = story.state.generation
        refused = CheckpointRefused(
            generation=generation, step=9 - turn, reason="block 3", node="n1"
        )
        story.tell(refused, RanksStopped(generation=generation))
    end = story.last[-1]
    assert isinstance(end, Finish)
    assert (end.outcome, end.cause) == (Outcome.STOPPED, "checkpoint damaged")
