"""Tests of reinforcement's world: prompts from known results, single judgements, numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import TrainingError
from cudal1.harness.judgement import Judgement
from cudal1.ledger import Ledger
from cudal1.problem import Admission, DeviceClass, Problem, Split
from cudal1.selection.contrast import Sampling
from cudal1.selection.progress import RewardForm
from cudal1.services.judging import VerdictSource
from cudal1.settings.params import Params
from cudal1.verdict import FlagSource, HackFlag, Status, Verdict
from tasks.learning.history import History
from tasks.learning.training import Steps
from tasks.learning.world import ContrastiveWorld
from tasks.rl import FILTERED
from tasks.stage import Stage
from tests.services.test_reviewing import VERDICT

SHIPPED = Params.load(Path(__file__).parents[3] / "params.yaml")
RL = SHIPPED.rl.model_copy(
    update={"plain_share": 0.0, "sampling": Sampling.BUCKET, "num_exemplars": 2, "tau": 1.0}
)
STAGE = Stage(name="rl", item=None, params=SHIPPED.model_copy(update={"rl": RL}), run="r")
PROBLEMS = [
    Problem(
        suite="toy",
        level=1,
        number=number,
        name=f"problem {number}",
        split=Split.TRAIN,
        revision="r",
        device_class=DeviceClass.CPU,
        source=f"class Model: ...  # {number}\n",
    )
    for number in (1, 2)
]
FIRST, SECOND = (problem.id for problem in PROBLEMS)


class FakeQueue:
    """A harness that takes its verdicts from words in the sources."""

    def __init__(self, sharing: Any, protocol: Any, settle: Any, **_: object) -> None:
        self._kind = sharing.devices[0].kind
        self._protocol = protocol
        self._settle = settle
        self._waiting: dict[str, tuple[Problem, Candidate, bool]] = {}
        self.added: list[str] = []
        self.breaks_at: str | None = None
        """Text in a source that interrupts its judgement."""

    def __enter__(self) -> FakeQueue:
        DOCKETS.append(self)
        return self

    def __exit__(self, *_: object) -> None: ...

    def add(self, problem: Problem, candidate: Candidate, *, timing: bool = True) -> None:
        if candidate.id not in self._waiting:
            self._waiting[candidate.id] = problem, candidate, timing
            self.added.append(candidate.id)

    def collect(self) -> dict[str, Verdict]:
        waiting, self._waiting = self._waiting, {}
        return {
            key: self._settle(problem, candidate, self._judged(candidate, timing=timing))
            for key, (problem, candidate, timing) in waiting.items()
        }

    def _judged(self, candidate: Candidate, *, timing: bool) -> Judgement:
        """Return a verdict of 2.5 for `# 2.5`, and of a cheat where the source says so."""
        if self.breaks_at is not None and self.breaks_at in candidate.source:
            raise KeyboardInterrupt
        found = re.search(r"# (\S+)", candidate.source)
        assert found is not None
        changes: dict[str, Any] = {
            "problem_id": candidate.problem_id,
            "candidate_id": candidate.id,
            "protocol_id": self._protocol.id,
            "device_kind": self._kind,
            "judge_s": 3.0,
        }
        if found[1] == "cheats":
            seen = HackFlag(kind="cached_output", source=FlagSource.GUARD, evidence="call 2")
            changes |= {
                "status": Status.HACKED,
                "reason": "it cheats",
                "measurement": None,
                "flags": (seen,),
            }
        elif found[1] == "crashes":
            changes |= {"status": Status.CRASHED, "reason": "ValueError: no", "measurement": None}
        elif not timing:
            changes |= {"protocol_id": self._protocol.checks_only().id, "measurement": None}
        else:
            assert VERDICT.measurement is not None
            speed = float(found[1])
            changes["measurement"] = VERDICT.measurement.model_copy(
                update={"speedup": speed, "certified": speed}
            )
        return Judgement(VERDICT.model_copy(update=changes), (), build_s=1.0)


DOCKETS: list[FakeQueue] = []


class Told:
    """The logged numbers of each step."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[str, float]] = {}

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.steps.setdefault(step, {}).update(values)


class World:
    """A ContrastiveWorld with its logged numbers."""

    def __init__(self, ledger: Ledger, stage: Stage = STAGE, history: History = FILTERED) -> None:
        self.ledger = ledger
        self.prompts: list[str] = []
        """The prompts of the later turns of `take_turns`."""
        self.told = Told()
        self.source = VerdictSource(ledger, DeviceClass.CPU, STAGE.params.protocol, None)
        self.acts = ContrastiveWorld(
            stage,
            ledger,
            self.source,
            PROBLEMS,
            self.told,  # pyright: ignore[reportArgumentType]
            history=history,
            num_tokens=lambda chat: len(chat[0]["content"]) // 4,
        )

    def step(self, step: int, answers: dict[str, list[str]], *, offers: bool = True) -> list[Any]:
        """Make one step as the trainer does; answers are given by problem."""
        for problem_id in answers:
            self.acts.build_prompt(problem_id, step)
        asked = [problem_id for problem_id, texts in answers.items() for _ in texts]
        if offers:
            for problem_id, texts in answers.items():
                self.acts.offer([problem_id] * len(texts), texts, step)
        return self.acts.score(asked, [text for texts in answers.values() for text in texts], step)

    def answers(self) -> list[dict[str, Any]]:
        return self.ledger.sql(
            "select problem_id, attempt, candidate_id, exemplar_ids, exemplar_scores, island, "
            "completion_id, turn, follows from completions "
            "order by attempt"
        ).to_dicts()


def says(speed: str, number: int = 0) -> str:
    return (
        "```python\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n"
        f"    def forward(self, x):  # {speed}\n        return x + {number}\n```\n"
    )


@pytest.fixture(autouse=True)
def harness(monkeypatch: pytest.MonkeyPatch) -> None:
    DOCKETS.clear()
    monkeypatch.setattr("cudal1.services.judging.JudgingQueue", FakeQueue)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("rl", run="r")
        ledger.add_protocol(STAGE.params.protocol)
        yield World(ledger)


def test_an_offered_answer_is_stored_and_being_judged_before_it_is_scored(world: World) -> None:
    world.acts.build_prompt(FIRST, 0)
    world.acts.offer([FIRST], [says("1.5")], 0)
    (answer,) = world.answers()
    assert DOCKETS[0].added == [answer["candidate_id"]]


def test_offers_change_no_reward(world: World, tmp_path: Path) -> None:
    answers = {FIRST: [says("1.5"), "nothing", says("cheats")], SECOND: [says("2.0"), says("9.0")]}
    offered = world.step(0, answers)
    with Ledger.open(tmp_path / "other") as ledger:
        ledger.begin("rl", run="r")
        ledger.add_protocol(STAGE.params.protocol)
        other = World(ledger)
        assert other.step(0, answers, offers=False) == offered
        assert other.answers() == world.answers()
    assert offered[1] == offered[2] == min(offered), "failures and cheats earn nothing"


def test_equal_sources_are_judged_once_within_a_step_and_after_it(world: World) -> None:
    world.step(0, {FIRST: [says("1.5"), says("1.5"), says("2.0"), "nothing"]})
    world.step(1, {FIRST: [says("2.0"), says("3.0")]})
    assert world.source.num_judged == 3
    assert len(set(DOCKETS[0].added)) == 3
    assert world.told.steps[1]["reused"] == pytest.approx(1 / 3)  # of those with a source
    assert world.told.steps[2]["reused"] == 0.5


def test_a_prompt_shows_results_of_the_step_before(world: World) -> None:
    plain = world.acts.build_prompt(FIRST, 0)
    world.step(0, {FIRST: [says("1.5"), says("3.0")]})
    found = {row["candidate_id"] for row in world.answers()}
    assert world.acts.build_prompt(FIRST, 1) != plain
    world.step(1, {FIRST: [says("4.0")]})
    assert set(world.answers()[-1]["exemplar_ids"]) == found


def test_a_prompt_that_would_be_too_long_loses_its_worst_exemplar(world: World) -> None:
    long = "0" * 4 * STAGE.params.max_contrast_tokens(RL)
    world.step(0, {FIRST: [says(f"1.5 {long}"), says("3.0")]})
    _, better = (row["candidate_id"] for row in world.answers())
    world.step(1, {FIRST: [says("4.0")]})
    assert world.answers()[-1]["exemplar_ids"] == [better]


def test_a_step_shows_no_exemplar_that_was_born_in_it(world: World) -> None:
    """So a step that is repeated after a kill has the prompts that it had."""
    world.step(0, {FIRST: [says("1.5")]})
    before = world.acts.build_prompt(FIRST, 1)
    world.step(1, {FIRST: [says("7.0"), says("9.0")]})
    again = World(world.ledger)
    assert again.acts.build_prompt(FIRST, 1) == before


@pytest.mark.slow
def test_a_step_repeated_after_a_kill_is_the_same_step(world: World) -> None:
    world.step(0, {FIRST: [says("1.5"), says("3.0")]})
    state = json.loads(json.dumps(world.acts.state()))
    answers = {FIRST: [says("4.0"), says("1.2")]}
    first, before = world.step(1, answers), world.answers()
    again = World(world.ledger)
    again.acts.restore(state)
    assert again.step(1, answers) == first
    assert again.answers() == before
    assert again.source.num_judged == 0
    rewards = world.ledger.sql("select step, count(*) as n from rewards group by step order by 1")
    assert rewards.rows() == [(0, 2), (1, 2)]


def test_a_step_logs_its_rewards_successes_and_speedups(world: World) -> None:
    world.step(0, {FIRST: [says("4.0"), says("cheats"), "nothing", says("0.5")]})
    told = world.told.steps[1]
    assert told["reward_raw"] == pytest.approx(4.5 / 4)
    assert told["reward_raw_std"] == pytest.approx(1.673, abs=1e-3)
    assert (told["success"], told["hacked"]) == (0.5, 0.25)
    assert told["best_speedup"] == pytest.approx((4.0 + 1.0) / 2)  # nothing of the second yet


def test_a_step_logs_what_became_of_the_exemplars_that_were_shown(world: World) -> None:
    world.step(0, {FIRST: [says("1.5", 1), says("2.0", 2)]})
    assert "copied" not in world.told.steps[1], "no prompt showed any"
    world.step(1, {FIRST: [says("2.0", 2), says("9.0", 1), says("4.0", 3), says("2.0", 4)]})
    told = world.told.steps[2]
    assert (told["copied"], told["progressed"], told["over_best"]) == (0.5, 0.25, (2 + 1) / 4)


def test_an_answer_is_new_once(world: World) -> None:
    world.step(0, {FIRST: [says("1.5", 1), says("1.5", 1), "nothing", says("2.0", 2)]})
    assert (world.told.steps[1]["new"], world.told.steps[1]["distinct"]) == (0.5, 2)
    answers = {FIRST: [says("1.5", 1), says("3.0", 3)], SECOND: [says("1.5", 1), says("2.0", 5)]}
    world.step(1, answers)
    assert (world.told.steps[2]["new"], world.told.steps[2]["distinct"]) == (0.75, 2)
    again = World(world.ledger)  # after a kill
    again.step(1, answers)
    assert again.told.steps[2]["new"] == 0.75


def test_a_night_shows_what_any_stage_has_found_and_calls_it_known(tmp_path: Path) -> None:
    """The pipeline's stage `rl` shows what stage `filter` has judged, and nothing of others."""
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("lessons", run="r")
        ledger.add_protocol(STAGE.params.protocol)
        before = World(ledger, replace(STAGE, name="lessons"))
        before.step(0, {FIRST: [says("1.5", 1), says("3.0", 3), says("cheats", 4)]})
        slow, fast, _ = (row["candidate_id"] for row in before.answers())
        rows = ledger.query(
            "history",
            problem_ids=[FIRST],
            device_kind=before.source.device.kind,
            protocol_id=STAGE.params.protocol.id,
        ).to_dicts()
        ledger.export()
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("challenger", run="r")
        stage = replace(STAGE, name="challenger")
        night = World(ledger, stage, History.of_rows(rows))
        night.step(0, {FIRST: [says("3.0", 3), says("4.0", 5)]})
        asked = "select exemplar_ids from completions where stage = 'challenger'"
        assert ledger.sql(asked)["exemplar_ids"].to_list() == [[slow, fast]] * 2
        assert night.told.steps[1]["new"] == 0.5, "the first is a lesson in other words"
        (shown,) = night.acts.build_prompt(FIRST, 0)
        (plain,) = World(ledger, stage).acts.build_prompt(FIRST, 0)
        assert says("3.0", 3).splitlines()[5] in shown["content"]
        assert says("3.0", 3).splitlines()[5] not in plain["content"]


def test_copies_earn_as_little_as_failures_where_progress_is_rewarded(
    tmp_path: Path, world: World
) -> None:
    rl = RL.model_copy(update={"reward": RewardForm.RATIO})
    stage = replace(STAGE, params=STAGE.params.model_copy(update={"rl": rl}))
    world = World(world.ledger, stage)
    world.step(0, {FIRST: [says("2.0", 2), says("3.0", 3)]})
    copy, failure, slower, better = world.step(
        1, {FIRST: [says("3.0", 3), "nothing", says("2.5", 4), says("4.0", 5)]}
    )
    assert copy == failure < slower < better
    raw = world.ledger.sql("select raw from rewards where step = 1 order by raw")
    assert raw["raw"].to_list() == [0.0, 2.5, 3.0, 4.0], "the ledger keeps the speedups"


def test_an_answer_that_is_not_whole_earns_nothing_where_it_must_be(world: World) -> None:
    said = "## {}\nOne pass over memory is enough, so both operators are fused here.\n"
    whole = (
        said.format("Performance Analysis")
        + said.format("Algorithm Design")
        + f"## Code Implementation\n{says('2.0', 2)}"
    )
    rl = RL.model_copy(update={"whole_answers": True})
    stage = replace(STAGE, params=STAGE.params.model_copy(update={"rl": rl}))
    world = World(world.ledger, stage)
    plain, none = world.step(0, {FIRST: [says("2.0", 1), "nothing"]})
    assert none < plain, "a plain prompt asks for code alone"
    assert "whole" not in world.told.steps[1]
    paid, bare, failure = world.step(1, {FIRST: [whole, says("3.0", 3), "nothing"]})
    assert bare == failure < paid
    assert world.told.steps[2]["whole"] == pytest.approx(1 / 3)
    (row,) = world.ledger.sql("select analysis from completions where analysis is not null").rows()
    assert row[0].startswith("One pass over memory")


def in_turns(world: World, **changed: Any) -> World:
    """Return the same world with two turns and a discount of 0.5."""
    rl = RL.model_copy(update={"turns": 2, "turn_discount": 0.5, **changed})
    return World(world.ledger, replace(STAGE, params=STAGE.params.model_copy(update={"rl": rl})))


def take_turns(world: World, step: int, first: list[str], later: list[str]) -> list[Any]:
    """Make a step with one group; its later answers go on from the first ones in order."""
    world.acts.build_prompt(FIRST, step)
    world.acts.offer([FIRST] * len(first), first, step)
    numbers = list(range(len(first)))
    world.prompts = [chat[0]["content"] for chat in world.acts.refine(numbers, step)]
    world.acts.offer_next(numbers, later, step)
    return world.acts.score([FIRST] * len(first + later), [*first, *later], step)


def test_a_later_turn_is_shown_its_own_attempt_and_what_became_of_it(world: World) -> None:
    world = in_turns(world)
    take_turns(world, 0, [says("2.0", 1), "nothing", says("cheats", 3)], [says("3.0", 4)] * 3)
    good, none, cheat = world.prompts
    assert "return x + 1" in good
    assert "Its speedup is 2.00" in good
    assert "return x + 3" not in good
    assert "No code was found" in none
    assert "It cheats: cached output." in cheat


def test_a_later_turn_is_stored_with_its_place_and_what_it_was_shown(world: World) -> None:
    world = in_turns(world)
    take_turns(world, 0, [says("2.0", 1), "nothing"], [says("3.0", 2), says("4.0", 3)])
    one, two, after_one, after_two = world.answers()
    assert [row["turn"] for row in (one, two, after_one, after_two)] == [1, 1, 2, 2]
    assert (one["follows"], two["follows"]) == (None, None)
    assert after_one["follows"] == one["completion_id"]
    assert after_two["follows"] == two["completion_id"]
    assert after_one["exemplar_ids"] == [one["candidate_id"]]
    assert after_one["exemplar_scores"] == [2.0]
    assert after_two["exemplar_ids"] == [], "an attempt without code is no program"


def test_an_attempt_earns_a_share_of_what_it_led_to(world: World) -> None:
    world = in_turns(world)
    led, alone, later, failed = take_turns(
        world, 0, ["nothing", "nothing at all"], [says("3.0", 2), "nothing more"]
    )
    smoothed = world.ledger.sql(
        "select smoothed, turn, follows from rewards join completions using (completion_id) "
        "order by attempt"
    )["smoothed"].to_list()
    counted = [each - fmean(smoothed) for each in smoothed]
    assert [later, failed] == counted[2:]
    assert led == pytest.approx(counted[0] + 0.5 * counted[2])
    assert alone == pytest.approx(counted[1] + 0.5 * counted[3])
    assert led > alone


def test_a_group_that_fails_trains_no_turn(world: World) -> None:
    world = in_turns(world)
    assert take_turns(world, 0, ["nothing", "no"], ["nothing", "more"]) == [0.0] * 4


def test_an_attempt_that_does_not_fit_into_the_prompt_earns_nothing_again(world: World) -> None:
    world = in_turns(world, reward=RewardForm.RATIO)
    comment = "# " + "0" * 4 * STAGE.params.max_contrast_tokens(RL)
    long = says("3.0", 2).replace("```python\n", f"```python\n{comment}\n")
    take_turns(world, 0, [long, says("2.0", 1)], [says("3.0", 2), says("4.0", 3)])
    assert world.told.steps[1]["copied"] == 0.5


def test_each_answer_of_a_trajectory_is_judged_and_counted_once(world: World) -> None:
    world = in_turns(world)
    take_turns(world, 0, [says("2.0", 1), says("3.0", 2)], [says("4.0", 3), says("2.0", 1)])
    told = world.told.steps[1]
    assert world.source.num_judged == 3
    assert told["reused"] == 0.25
    assert (told["reward_turn_1"], told["reward_turn_2"]) == (2.5, 3.0)
    assert told["copied"] == 0, "the other trajectory's attempt was not shown"


def test_repeating_an_attempt_is_a_copy(world: World) -> None:
    world = in_turns(world, reward=RewardForm.RATIO)
    take_turns(world, 0, [says("2.0", 1), says("3.0", 2)], [says("2.0", 1), says("4.0", 3)])
    told = world.told.steps[1]
    assert (told["copied"], told["progressed"]) == (0.5, 0.5)
    *_, copy, better = take_turns(world, 1, ["a", "b"], [says("4.0", 3), says("6.0", 5)])
    assert copy < better


def test_a_later_turn_lives_on_the_island_of_its_first(world: World) -> None:
    world = in_turns(world, sampling=Sampling.ISLAND)
    take_turns(world, 0, [says("2.0", 1)], [says("3.0", 2)])
    first, later = world.answers()
    assert first["island"] == later["island"] is not None


def test_a_later_turn_without_room_for_its_attempt_is_asked_plainly(world: World) -> None:
    world = in_turns(world, whole_answers=True)
    plain = world.acts.build_prompt(FIRST, 0)[0]["content"]
    long = "0" * 4 * STAGE.params.max_contrast_tokens(RL)
    _, paid = take_turns(world, 0, [says(f"2.0 {long}")], [says("3.0", 2)])
    assert world.prompts == [plain]
    assert paid > 0, "a plain prompt asks for code alone"


def test_successes_of_every_turn_may_be_exemplars_of_later_steps(world: World) -> None:
    world = in_turns(world)
    take_turns(world, 0, [says("2.0", 1)], [says("3.0", 2)])
    found = {row["candidate_id"] for row in world.answers()}
    take_turns(world, 1, [says("2.0", 5)], [says("3.0", 6)])
    assert set(world.answers()[2]["exemplar_ids"]) == found


def showing_failures(world: World, **changed: Any) -> World:
    """Return the same world with prompts that show one failure."""
    rl = RL.model_copy(update={"num_failures": 1, **changed})
    return World(world.ledger, replace(STAGE, params=STAGE.params.model_copy(update={"rl": rl})))


def test_a_prompt_shows_the_newest_failure_behind_its_exemplars(world: World) -> None:
    world = showing_failures(world)
    world.step(0, {FIRST: [says("crashes", 1), says("2.0", 2), says("crashes", 3), says("cheats")]})
    (text,) = (message["content"] for message in world.acts.build_prompt(FIRST, 1))
    assert "It crashes: ValueError: no" in text
    assert text.index("return x + 2") < text.index("return x + 3")
    assert "return x + 1" not in text
    assert "cheats" not in text
    world.step(1, {FIRST: [says("crashes", 3), says("3.0", 4)]})
    answer = world.answers()[-1]
    good, bad = (world.answers()[place]["candidate_id"] for place in (1, 2))
    assert (answer["exemplar_ids"], answer["exemplar_scores"]) == ([good, bad], [2.0, 0.0])
    assert world.told.steps[2]["copied"] == 0.5, "the failure again"


def test_a_failure_is_shown_before_there_is_any_success(world: World) -> None:
    world = showing_failures(world)
    world.step(0, {FIRST: [says("crashes", 1)]})
    (text,) = (message["content"] for message in world.acts.build_prompt(FIRST, 1))
    assert "return x + 1" in text


def test_a_step_shows_no_failure_that_came_in_it(world: World) -> None:
    """So a step that is repeated after a kill has the prompts that it had."""
    world = showing_failures(world)
    world.step(0, {FIRST: [says("crashes", 1)]})
    before = world.acts.build_prompt(FIRST, 1)
    world.step(1, {FIRST: [says("crashes", 2)]})
    assert showing_failures(world).acts.build_prompt(FIRST, 1) == before


@pytest.mark.parametrize("changed", [{"plain_share": 1.0}, {"sampling": Sampling.NONE}])
def test_a_plain_prompt_shows_no_failure(world: World, changed: dict[str, Any]) -> None:
    world = showing_failures(world, **changed)
    plain = world.acts.build_prompt(FIRST, 0)
    world.step(0, {FIRST: [says("crashes", 1)]})
    assert world.acts.build_prompt(FIRST, 1) == plain


def test_an_island_is_shown_failures_of_its_own(world: World) -> None:
    world = showing_failures(world, sampling=Sampling.ISLAND, num_islands=2)
    for step in range(8):
        world.step(step, {FIRST: [says("crashes", step)]})
    sources = {row["candidate_id"]: row["island"] for row in world.answers()}
    shown = [(row["island"], each) for row in world.answers() for each in row["exemplar_ids"]]
    assert len({island for island, _ in shown}) == 2
    assert all(sources[each] == island for island, each in shown)


@pytest.mark.slow
def test_the_best_so_far_never_falls(world: World) -> None:
    for step, speed in enumerate(("2.0", "5.0", "0.7", "3.0")):
        world.step(step, {FIRST: [says(speed)]})
    best = [world.told.steps[step]["best_speedup"] for step in range(1, 5)]
    assert best == [1.5, 3.0, 3.0, 3.0]
    after = World(world.ledger)
    after.step(4, {SECOND: [says("cheats")]})
    assert after.told.steps[5]["best_speedup"] == 3.0


class Curves:
    """MLflow's curves of each problem's best."""

    def __init__(self, ledger: Ledger) -> None:
        self.last_step = -1
        self.points: list[tuple[str, int, float]] = []
        self.steps = Steps(ledger, self, lambda _: None, lambda: None)  # pyright: ignore[reportArgumentType]

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.last_step = max(step, self.last_step)
        self.points += [(n, step, v) for n, v in values.items() if n.startswith("problems/best/")]


@pytest.mark.slow
def test_each_problem_has_a_curve_with_a_point_where_its_best_has_risen(world: World) -> None:
    for problem in PROBLEMS:
        world.ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
    for step, (first, second) in enumerate(
        (("2.0", "cheats"), ("1.5", "cheats"), ("2.0", "0.5"), ("4.0", "0.25"), ("1.0", "0.75"))
    ):
        world.step(step, {FIRST: [says(first)], SECOND: [says(second), "nothing"]})
    curves = Curves(world.ledger)
    curves.steps.tell(before=4)
    curves.steps.tell()
    one, two = (f"problems/best/{problem.key}" for problem in PROBLEMS)
    assert curves.points == [(one, 1, 2.0), (two, 3, 0.5), (one, 4, 4.0), (two, 5, 0.75)]
    assert all(
        re.fullmatch(r"[/\w.\- :]*", name) for name, _, _ in curves.points
    )  # as MLflow wants


def test_a_best_that_a_repeated_step_has_lost_is_not_logged(world: World) -> None:
    for problem in PROBLEMS:
        world.ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
    world.step(0, {FIRST: [says("2.0")]})
    for speed in ("9.0", "3.0"):  # killed, and sampled otherwise
        World(world.ledger).step(1, {FIRST: [says(speed)]})
    curves = Curves(world.ledger)
    curves.steps.tell()
    assert [(step, value) for _, step, value in curves.points] == [(1, 2.0), (2, 3.0)]


def test_the_parts_of_a_steps_time_are_logged_when_it_ends(world: World) -> None:
    world.step(0, {FIRST: [says("4.0"), says("2.0")]})
    assert "step_s" not in world.told.steps[1]
    world.acts.build_prompt(FIRST, 1)
    told = world.told.steps[1]
    assert (told["judge_s"], told["build_s"]) == (4.0, 2.0)
    assert {"generate_s", "train_s", "rest_s", "step_s", "idle"} <= set(told)
    world.step(1, {FIRST: [says("4.0")]})
    world.acts.end_step()
    assert world.told.steps[2]["judge_s"] == 0


def test_answers_that_were_not_offered_are_refused(world: World) -> None:
    world.acts.build_prompt(FIRST, 0)
    world.acts.offer([FIRST], [says("1.5")], 0)
    with pytest.raises(TrainingError, match="otherwise than they were sampled"):
        world.acts.score([FIRST], [says("2.5")], 0)
