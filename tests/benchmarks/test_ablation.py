"""Tests of the ablation's driver, on generated problems, with the simulated judge and no model."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import benchmarks.ablation.__main__ as driver
from benchmarks.ablation import answers, carry, diagnosis, gains, problems, reading, table
from benchmarks.ablation import plan as plans
from benchmarks.ablation.exam import Sitting, examine
from benchmarks.ablation.judges import Bench, TimeUp
from benchmarks.ablation.memory import Diary, Found, Lines, Memory
from benchmarks.ablation.plan import Group, Plan, Row
from benchmarks.ablation.rows import Experiment
from benchmarks.ablation.simulated import SimulatedJudge
from benchmarks.ablation.steps import Steps, path_of
from benchmarks.ablation.world import ContrastiveWorld
from benchmarks.common import RESULTS
from cudal1.candidate import Candidate
from cudal1.errors import ConfigError
from cudal1.harness.device.device import find_device
from cudal1.problem import DeviceClass, Problem
from cudal1.prompts.prompt import answer_text
from cudal1.selection.contrast import Sampling
from cudal1.suite import generator
from cudal1.teachers import TEACHERS, compose, places, variant
from cudal1.train.policy import Chat, Sampled

MANY = 10_000


@pytest.fixture(scope="module")
def plan() -> Plan:
    whole = plans.load("rehearsal")
    counts = dict.fromkeys(Group, 3)
    return whole.model_copy(
        update={"problems": whole.problems.model_copy(update={"counts": counts})}
    )


@pytest.fixture(autouse=True)
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set noise to 0: it depends on candidates' ids, which differ between generator versions."""
    monkeypatch.setattr("benchmarks.experiment.roofline.NOISE", 0.0)


class Parrot:
    """A policy without weights that answers with the rewriter's variants."""

    def __init__(self, drawn: Sequence[Problem]) -> None:
        self._problems = drawn
        self.prompts: list[str] = []

    def num_tokens(self, chat: Chat) -> int:
        return len(chat[0]["content"]) // 3

    def sample(self, chats: Sequence[Chat], *, seed: int, **_: object) -> list[Sampled]:
        rng = random.Random(seed)
        self.prompts += [chat[0]["content"] for chat in chats]
        made = [
            variant(self._asked(chat).source, rng=rng, weights=TEACHERS["apprentice"].weights)
            for chat in chats
        ]
        return [Sampled(answer_text(each.source), "stop", 1, 1) for each in made]

    def _asked(self, chat: Chat) -> Problem:
        return next(p for p in self._problems if p.source.rstrip() in chat[0]["content"])


def bench(plan: Plan, state: Path, *, allowed: int = MANY) -> Bench:
    """Return a bench that has no time left after `allowed` judgements."""
    judge = SimulatedJudge()
    made: list[Bench] = []

    def time_left_s() -> float:
        return allowed - made[0].num_judged if made else 1.0

    made.append(Bench(Memory(state), judge, time_left_s=time_left_s))
    return made[0]


def test_shipped_plans_are_readable_and_none_rehearses_with_held_out_problems() -> None:
    for name, group in (("rehearsal", Group.VALIDATION), ("gpu", Group.HELDOUT)):
        plan = plans.load(name)
        assert sorted(plan.rows) == sorted(Row)
        assert set(plan.exam.groups) == {Group.TRAIN, group}
        assert plan.rl.num_problems == plan.teaching.num_problems
        assert plan.selfsup.num_problems == plan.problems.counts[Group.TRAIN]


@pytest.mark.parametrize("name", ["rehearsal", "gpu"])
def test_groups_of_problems_share_neither_problem_nor_combination(name: str) -> None:
    plan = plans.load(name)
    drawn = problems.draw(plan.problems, plan.device)
    assert {group: len(found) for group, found in drawn.items()} == plan.problems.counts
    names = {group: {p.name for p in found} for group, found in drawn.items()}
    for group in Group:
        for other in Group:
            assert group is other or not names[group] & names[other]


def test_a_truncated_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    Lines(path).add({"a": 1})
    with path.open("a") as stream:
        stream.write('{"a": ')
    lines = Lines(path)
    lines.add({"a": 2})
    assert list(lines) == [{"a": 1}, {"a": 2}]


def found(
    problem_id: str, candidate_id: str | None, score: float, born: int, shown: Sequence[str] = ()
) -> Found:
    return Found(
        problem_id=problem_id,
        candidate_id=candidate_id,
        score=score,
        born=born,
        island=None,
        exemplar_ids=tuple(shown),
        num_tokens=1,
    )


def test_a_repeated_batch_replaces_the_first_one(tmp_path: Path) -> None:
    diary = Diary(tmp_path / "diary.jsonl")
    diary.add("step 3", [found("p", "old", 2.0, 3)])
    diary.add("step 3", [found("p", "new", 3.0, 3)])
    for each in (diary, Diary(tmp_path / "diary.jsonl")):
        assert [birth.candidate_id for birth in each.births("p")] == ["new"]


def test_the_simulated_judge_knows_right_from_wrong_and_each_problem_has_its_own_best_knob(
    plan: Plan,
) -> None:
    judge = SimulatedJudge()
    best: set[int] = set()
    for index in range(12):
        problem = generator.generate(
            1, index, device_class=plan.device, num_stages=1, families=["order_chain"]
        )
        copy = Candidate(problem_id=problem.id, source=compose(problem.source, [None]).source)
        assert judge.judge(problem, copy, None) == ("correct", 1.0)
        options = places(problem.source)[0].options
        speeds = [
            judge.judge(
                problem,
                Candidate(problem_id=problem.id, source=compose(problem.source, [n]).source),
                None,
            )[1]
            for n in range(len(options))
        ]
        wrong = [n for n, option in enumerate(options) if option.kind == "wrong"]
        assert all((speeds[n] == 0) == (n in wrong) for n in range(len(options)))
        best.add(speeds.index(max(speeds)))
        garbage = Candidate(problem_id=problem.id, source="class ModelNew(")
        assert judge.judge(problem, garbage, None) == ("incorrect", 0.0)
    assert len(best) > 1


@pytest.mark.slow
def test_an_interrupted_exam_continues_and_judges_nothing_twice(plan: Plan, tmp_path: Path) -> None:
    whole = bench(plan, tmp_path / "whole")
    Experiment(plan, tmp_path / "whole", whole, print).teach()
    pieces: list[int] = []
    for _ in range(MANY):
        piece = bench(plan, tmp_path / "pieces", allowed=5)
        try:
            Experiment(plan, tmp_path / "pieces", piece, print).teach()
        except TimeUp:
            pieces.append(piece.num_judged)
            continue
        pieces.append(piece.num_judged)
        break
    assert len(pieces) > 2
    assert sum(pieces) == whole.num_judged
    for name in ("teaching.jsonl", "judged.jsonl"):
        assert len(list(Lines(tmp_path / "pieces" / name))) == len(
            list(Lines(tmp_path / "whole" / name))
        )


@pytest.mark.parametrize("sampling", [Sampling.NONE, Sampling.BUCKET, Sampling.ISLAND])
def test_an_exam_begins_without_exemplars_and_continues_with_the_rows_own_prompts(
    plan: Plan, tmp_path: Path, sampling: Sampling
) -> None:
    drawn = problems.draw(plan.problems, plan.device)[Group.HELDOUT]
    parrot, diary = Parrot(drawn), Diary(tmp_path / "exam.jsonl")
    sitting = Sitting(parrot, diary, [], sampling, seed=1)
    examine(plan, drawn, [sitting], bench(plan, tmp_path))
    size = len(drawn) * plan.exam.answers_per_round
    assert len(diary.batches) == plan.exam.rounds
    assert all(len(batch) == size for batch in diary.batches.values())
    assert not any(each.exemplar_ids for each in diary.batches["round 0"])
    later = [each for name, batch in diary.batches.items() if name != "round 0" for each in batch]
    assert any(each.exemplar_ids for each in later) == (sampling is not Sampling.NONE)
    assert all(each.num_tokens <= plan.max_prompt_tokens for each in later if each.exemplar_ids)
    for each in later:
        before = [b for b in diary.births(each.problem_id) if (b.born or 0) < (each.born or 0)]
        assert set(each.exemplar_ids) <= {birth.candidate_id for birth in before}
    num_asked = len(parrot.prompts)
    examine(plan, drawn, [sitting], bench(plan, tmp_path))
    assert len(parrot.prompts) == num_asked  # finished rounds are not repeated


@pytest.mark.slow
def test_the_answers_of_all_rows_to_a_problem_are_judged_before_the_next_problem(
    plan: Plan, tmp_path: Path
) -> None:
    drawn = problems.draw(plan.problems, plan.device)[Group.HELDOUT]
    sittings = [
        Sitting(Parrot(drawn), Diary(tmp_path / f"{seed}.jsonl"), [], Sampling.NONE, seed=seed)
        for seed in (1, 2, 3)
    ]
    examine(plan, drawn, sittings, bench(plan, tmp_path))
    judged = [line["problem_id"] for line in Lines(tmp_path / "judged.jsonl")]
    changes = sum(one != other for one, other in pairwise(judged))
    assert changes < plan.exam.rounds * len(drawn)
    assert all(len(sitting.diary.batches) == plan.exam.rounds for sitting in sittings)


def world_of(problem: Problem, plan: Plan, device_process: Bench, state: Path) -> ContrastiveWorld:
    return ContrastiveWorld(
        [problem],
        device_process,
        Diary(state / "row.jsonl"),
        Diary(state / "seeds.jsonl"),
        Steps(state / "row.steps.jsonl"),
        plan.rl.model_copy(update={"plain_share": 0.0}),
        max_tokens=MANY,
        num_tokens=lambda chat: len(chat[0]["content"]),
        say=print,
    )


def copy_of(problem: Problem) -> str:
    return answer_text(compose(problem.source, [None] * len(places(problem.source))).source)


def test_the_world_shows_results_of_earlier_steps_only(plan: Plan, tmp_path: Path) -> None:
    (problem, *_) = problems.draw(plan.problems, plan.device)[Group.TRAIN]
    device_process = bench(plan, tmp_path)
    world = world_of(problem, plan, device_process, tmp_path)
    assert "score" not in world.build_prompt(problem.id, 0)[0]["content"]
    copy = copy_of(problem)
    rewards = world.score([problem.id, problem.id], [copy, "no code"], 0)
    assert rewards[0] is not None
    assert rewards[1] is not None
    assert rewards[0] > rewards[1]
    assert "Code 1, score 1.00" in world.build_prompt(problem.id, 1)[0]["content"]
    assert device_process.num_judged == 1


def test_a_step_is_one_line_with_the_numbers_of_the_world_and_the_trainer(
    plan: Plan, tmp_path: Path
) -> None:
    (problem, *_) = problems.draw(plan.problems, plan.device)[Group.TRAIN]
    world = world_of(problem, plan, bench(plan, tmp_path), tmp_path)
    answers, ids = [copy_of(problem)] * 3 + ["no code"], [problem.id] * 4
    for step in range(2):
        world.build_prompt(problem.id, step)
        world.offer(ids, answers, step)
        world.score(ids, answers, step)
        world.log(step + 1, {"loss": 0.5, "kl": 0.25})
    first, second = Steps(tmp_path / "row.steps.jsonl").in_order
    for line in (first, second):
        assert (line["loss"], line["kl"], line["reward_raw"], line["success"]) == (
            0.5,
            0.25,
            0.75,
            0.75,
        )
        assert (line["no_code"], line["hacked"]) == (0.25, 0)
        assert all(
            line[f"{part}_s"] >= 0 for part in ("prompts", "sampling", "judging", "updating")
        )
    assert (first["step"], first["with_exemplars"], first["reused"]) == (1, 0, 2 / 3)
    assert (second["step"], second["with_exemplars"], second["reused"]) == (2, 1, 1)
    assert "copied" not in first
    assert second["copied"] == 0.75


def test_further_updates_of_the_trainer_do_not_repeat_the_worlds_numbers(
    plan: Plan, tmp_path: Path
) -> None:
    (problem, *_) = problems.draw(plan.problems, plan.device)[Group.TRAIN]
    world = world_of(problem, plan, bench(plan, tmp_path), tmp_path)
    world.build_prompt(problem.id, 0)
    world.score([problem.id] * 2, [copy_of(problem)] * 2, 0)
    for step in (1, 2):
        world.log(step, {"loss": 0.5})
    first, second = Steps(tmp_path / "row.steps.jsonl").in_order
    assert "reward_raw" in first
    assert second == {"loss": 0.5, "step": 2}


def test_a_repeated_step_replaces_the_first_one_and_the_trainers_last_line_is_no_step(
    tmp_path: Path,
) -> None:
    path = tmp_path / "row.steps.jsonl"
    for loss in (1.0, 2.0):  # the second comes after a kill
        steps = Steps(path)
        for step in (1, 2):
            steps.log(step, {"loss": loss})
    steps.log(2, {"epoch": 1.0})
    for each in (steps, Steps(path)):
        assert each.in_order == [{"loss": 2.0, "step": 1}, {"loss": 2.0, "step": 2}]


def test_a_diagnosis_compares_the_first_fifth_of_steps_with_the_last(
    plan: Plan, tmp_path: Path
) -> None:
    run = Steps(path_of(tmp_path, "grpo-bucket-1"))
    for step in range(1, 11):
        shown = {"copied": 0.5} if step > 5 else {}
        run.log(step, {"loss": 0.0, "reward_raw": float(step), "kl": step / 10, **shown})
    Steps(path_of(tmp_path, "sft-1")).log(5, {"loss": 0.125})
    Steps(path_of(tmp_path, "selfsup-1"))  # it has begun and logged nothing
    text = diagnosis.markdown(plan, [tmp_path])
    head, line = (
        next(row for row in text.splitlines() if row.startswith(f"| {name}")).split(" | ")
        for name in ("stage 3", "grpo-bucket-1")
    )
    cells = dict(zip(head, line, strict=True))
    assert (cells["reward"], cells["KL"]) == ("1.50 → 9.50", "0.150 → 0.950")
    assert (cells["copied"], cells["entropy"]) == ("- → 0.50", "- → -")
    assert "| sft-1 | 0.125 → 0.125 |" in text
    assert "selfsup-1" not in text


def test_the_caption_names_exactly_the_differences_from_the_paper(plan: Plan) -> None:
    plain = plan.rl.model_copy(update={"smooth_log": False, "plain_share": 0.0})
    said = table.caption(plan)
    assert "log(1 + reward)" in said
    assert "25%" in said
    assert table.caption(plan.model_copy(update={"rl": plain})) == f"{plan.title}."


def test_the_table_counts_failures_once_as_0_and_once_as_1(tmp_path: Path) -> None:
    diary = Diary(tmp_path / "diary.jsonl")
    diary.add("round 0", [found("a", "x", 4.0, 0), found("b", "y", 0.0, 0)])
    diary.add("round 1", [found("a", "z", 1.0, 1, shown="xz"), found("b", "w", 0.0, 1, shown="y")])
    numbers = table.marks(diary)
    assert (numbers["mean_0"], numbers["mean_1"], numbers["geomean_1"]) == (2.0, 2.5, 2.0)
    assert (numbers["solved"], numbers["above_101"]) == (1, 1)
    assert (numbers["plain_mean_0"], numbers["plain_success"]) == (2.0, 0.5)
    assert (numbers["answer_mean_0"], numbers["answer_mean_1"]) == (0.5, 1.0)
    assert (numbers["answer_success"], numbers["answer_share_above_101"]) == (0.5, 0.0)
    assert numbers["answer_copies"] == 0.5


def test_echo_repeats_the_best_of_the_first_round(tmp_path: Path) -> None:
    diary = Diary(tmp_path / "diary.jsonl")
    first = [found("a", "x", 4.0, 0), found("a", "y", 1.0, 0), found("b", "z", 0.0, 0)]
    diary.add("round 0", first)
    diary.add("round 1", [found("a", "v", 9.0, 1), found("b", "w", 9.0, 1)])
    assert table.marks(diary)["answer_echo_mean_0"] == (4.0 + 0.0) / 2


def test_a_gain_is_computed_within_problems(plan: Plan, tmp_path: Path) -> None:
    for row, scores in ((Row.GRPO, (1.0, 4.0, 0.0)), (Row.BUCKET, (2.0, 5.0, 1.0))):
        path = tmp_path / "exams" / f"{row.value}-1" / f"{Group.VALIDATION.value}.jsonl"
        for number in range(plan.exam.rounds):
            batch = [
                found(p, f"{p}{number}", s, number) for p, s in zip("abc", scores, strict=True)
            ]
            Diary(path).add(f"round {number}", batch)
    (gain,) = gains.collect(plan, [tmp_path])
    assert (gain.row, gain.base, gain.one_answer) == ("grpo-bucket", "grpo-none", (1.0, 1.0, 1.0))
    assert gain.best[0] == pytest.approx((2 / 1 * 5 / 4 * 1 / 1) ** (1 / 3))
    assert "| +1.00 (+1.00 to +1.00) | 1.36x" in gains.markdown([gain])


def test_one_table_collects_the_seeds_of_several_states(plan: Plan, tmp_path: Path) -> None:
    both = plan.model_copy(update={"seeds": (1, 2)})
    states = [tmp_path / name for name in "ab"]
    for seed, state in enumerate(states, start=1):
        exam = Diary(state / "exams" / f"{Row.SFT.value}-{seed}" / f"{Group.TRAIN.value}.jsonl")
        for number in range(plan.exam.rounds):
            exam.add(f"round {number}", [found("a", "x", float(seed), number)])
        training = Diary(state / "training" / f"{Row.GRPO.value}-{seed}.jsonl")
        training.add("step 0", [found("a", "x", float(seed), 0)])
        Steps(path_of(state, f"{Row.GRPO.value}-{seed}")).log(1, {"loss": float(seed)})
    seeds = table.collect(both, states)[Row.SFT][Group.TRAIN]
    assert {seed: numbers["mean_0"] for seed, numbers in seeds.items()} == {1: 1.0, 2: 2.0}
    assert table.curves(states) == {"grpo-none-1": [1.0], "grpo-none-2": [2.0]}
    losses = {
        name: [step["loss"] for step in run] for name, run in diagnosis.runs(both, states).items()
    }
    assert losses == table.curves(states)


def test_the_published_table_follows_from_the_published_answers(tmp_path: Path) -> None:
    published = json.loads((RESULTS / "ablation_cuda.json").read_text("utf-8"))
    plan = Plan.model_validate(published["plan"])  # the plan in the tree may have changed since
    content = json.loads((RESULTS / "ablation_answers_cuda.json").read_text("utf-8"))
    answers.restore(content, tmp_path)
    driver.show(plan, [tmp_path])
    made = json.loads((tmp_path / "table.json").read_text("utf-8"))
    assert [made[name] for name in ("rows", "gains")] == [
        published[name] for name in ("rows", "gains")
    ]
    assert json.loads((tmp_path / "answers.json").read_text("utf-8")) == content


@pytest.mark.parametrize(
    ("line", "group", "number"),
    [
        ("training problems", "train", "answer_mean_0"),
        ("training problems, echo", "train", "answer_echo_mean_0"),
        ("held-out problems", "heldout", "answer_mean_0"),
        ("held-out problems, echo", "heldout", "answer_echo_mean_0"),
    ],
)
def test_the_page_of_results_states_the_published_means(line: str, group: str, number: str) -> None:
    rows = json.loads((RESULTS / "ablation_cuda.json").read_text("utf-8"))["rows"]
    page = (RESULTS.parents[1] / "docs" / "results.md").read_text("utf-8")
    (cells,) = re.findall(rf"^\| {line} \|(.+)\|$", page, re.MULTILINE)
    shown = [cell.strip().strip("*") for cell in cells.split("|")]
    assert shown == [
        f"{fmean(seed[number] for seed in rows[row.value][group].values()):.2f}" for row in Row
    ]


def test_a_table_names_the_machines_of_each_state(plan: Plan, tmp_path: Path) -> None:
    device = find_device(DeviceClass.CPU)
    states = [tmp_path / name for name in "ab"]
    for state in states:
        state.mkdir()
        for _ in range(2):
            driver.note_machine(device, "p", state)
    driver.show(plan, states)
    machines = json.loads((states[0] / "table.json").read_text())["machines"]
    assert [[machine["device"] for machine in each] for each in machines] == [[device.kind]] * 2


@pytest.mark.parametrize(
    ("kind", "protocol_id", "said"),
    [
        ("another", "p", "was judged with device cpu, this is another: begin another state"),
        ("cpu", "q", "was judged with protocol_id p, this is q: begin another state"),
    ],
)
def test_verdicts_of_another_device_kind_or_protocol_are_not_reused(
    tmp_path: Path, kind: str, protocol_id: str, said: str
) -> None:
    device = find_device(DeviceClass.CPU)
    driver.note_machine(device, "p", tmp_path)
    with pytest.raises(ConfigError, match=said):
        driver.note_machine(device.model_copy(update={"kind": kind}), protocol_id, tmp_path)
    assert len((tmp_path / driver.MACHINES).read_text().splitlines()) == 1


def test_verdicts_without_a_noted_machine_are_not_reused(tmp_path: Path) -> None:
    Lines(tmp_path / "judged.jsonl").add({})
    with pytest.raises(ConfigError, match="has verdicts and no machines"):
        driver.note_machine(find_device(DeviceClass.CPU), "p", tmp_path)


def test_verdicts_without_a_noted_protocol_are_not_reused(tmp_path: Path) -> None:
    device = find_device(DeviceClass.CPU)
    Lines(tmp_path / driver.MACHINES).add({"device": device.kind})
    with pytest.raises(ConfigError, match="was judged with protocol_id None, this is p"):
        driver.note_machine(device, "p", tmp_path)


def test_a_machine_with_a_truncated_line_is_noted_again(tmp_path: Path) -> None:
    device = find_device(DeviceClass.CPU)
    (tmp_path / driver.MACHINES).write_text('{"device": "c')
    driver.note_machine(device, "p", tmp_path)
    (line,) = (tmp_path / driver.MACHINES).read_text().splitlines()
    assert json.loads(line)["device"] == device.kind


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_stages_1_and_2_repeat_how_scores_are_read(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    learned: list[Any] = []
    monkeypatch.setattr(
        "benchmarks.ablation.rows.train_sft",
        lambda init, out, pairs, settings, on_log, **_: (
            learned.extend(pairs),
            on_log(1, {"loss": 1.0}),
        ),
    )
    experiment = Experiment(
        plan.model_copy(update={"replay": share}), tmp_path, bench(plan, tmp_path), print
    )
    experiment.teach()
    experiment.policy(Row.SFT, 1)
    with_scores = [chat for chat, _ in learned if ", score " in chat[0]["content"]]
    assert len(with_scores) == share * (len(learned) - len(with_scores))


@pytest.mark.slow
def test_stage_2_asks_about_more_problems_than_stage_1_taught(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = problems.draw(plan.problems, plan.device)[Group.TRAIN]
    parrot = Parrot(drawn)
    learned: list[int] = []
    monkeypatch.setattr("benchmarks.ablation.rows.Sampler", lambda _: parrot)
    monkeypatch.setattr(
        "benchmarks.ablation.rows.train_sft",
        lambda init, out, pairs, settings, on_log, **_: (
            learned.append(len(pairs)),
            on_log(1, {"loss": 1}),
        ),
    )
    taught = plan.teaching.model_copy(update={"num_problems": 1})
    experiment = Experiment(
        plan.model_copy(update={"teaching": taught}), tmp_path, bench(plan, tmp_path), print
    )
    experiment.teach()
    experiment.policy(Row.SELFSUP, 1)
    teaching = Diary(tmp_path / "teaching.jsonl")
    assert [problem.id in teaching for problem in drawn] == [True, False, False]
    own = Diary(tmp_path / "training" / "selfsup-1.jsonl").batches["own"]
    assert {found.problem_id for found in own} == {problem.id for problem in drawn}
    assert all(learned)


@pytest.mark.slow
def test_each_round_of_stage_2_asks_the_previous_policy_and_trains_it_further(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parrot = Parrot(problems.draw(plan.problems, plan.device)[Group.TRAIN])
    asked: list[str] = []
    trained: list[tuple[str, str]] = []

    def train(
        init: Path, out: Path, pairs: object, settings: object, *, on_log: Any, **_: object
    ) -> None:
        trained.append((init.name, out.name))
        on_log(1, {"loss": 1.0})

    monkeypatch.setattr(
        "benchmarks.ablation.rows.Sampler", lambda path: (asked.append(path.name), parrot)[1]
    )
    monkeypatch.setattr("benchmarks.ablation.rows.train_sft", train)
    plan = plan.model_copy(update={"selfsup": plan.selfsup.model_copy(update={"rounds": 2})})
    experiment = Experiment(plan, tmp_path, bench(plan, tmp_path), print)
    experiment.teach()
    assert experiment.policy(Row.SELFSUP, 1).name == "selfsup-1"
    assert asked == ["sft-1", "selfsup-round1-1"]
    assert trained[1:] == [("sft-1", "selfsup-round1-1"), ("selfsup-round1-1", "selfsup-1")]


class Reader(Parrot):
    """A policy that answers with the last code of its prompt, which has the highest score."""

    def sample(self, chats: Sequence[Chat], *, seed: int, **_: object) -> list[Sampled]:
        codes = [chat[0]["content"].split("Code 2, score 2.90:\n")[1] for chat in chats]
        sources = [code.split("Reference:\n")[0] for code in codes]
        return [Sampled(answer_text(source), "stop", 1, 1) for source in sources]


@pytest.mark.slow
def test_the_count_tells_a_policy_that_reads_scores_from_one_that_does_not(plan: Plan) -> None:
    drawn = problems.draw(plan.problems, plan.device)[Group.VALIDATION]
    for asked in reading.questions(drawn):
        counts = reading.look(Reader(drawn), plan, asked, 2)
        assert counts["right"] == counts["copies"] == counts["answers"] == 2 * len(drawn)
        assert (counts["better"], counts["worse"]) == (counts["places"], 0)
    shown, exchanged = (reading.look(Parrot(drawn), plan, a, 8) for a in reading.questions(drawn))
    assert 0 < shown["better"] == exchanged["worse"]


@pytest.mark.slow
def test_a_state_survives_packing(plan: Plan, tmp_path: Path) -> None:
    state = tmp_path / "state"
    Experiment(plan, state, bench(plan, state), print).teach()
    for name in ("selfsup-1", "selfsup-round1-1"):
        policy = state / "policies" / name
        policy.mkdir(parents=True)
        (policy / "config.json").write_text("{}")
    done = state / "policies" / "no-row-1"
    done.mkdir()
    (done / "config.json").write_text("{}")
    Steps(path_of(state, "sft-1")).log(1, {"loss": 1.0})
    pieces = carry.pack(plan, state, tmp_path / "out")
    assert all(piece.stat().st_size <= carry.CHUNK_BYTES for piece in pieces)
    carry.unpack(tmp_path / "out", tmp_path / "back")
    back = tmp_path / "back"
    assert (back / "judged.jsonl").read_bytes() == (state / "judged.jsonl").read_bytes()
    assert Steps(path_of(back, "sft-1")).in_order == Steps(path_of(state, "sft-1")).in_order != []
    assert (back / "policies" / "selfsup-1" / "config.json").exists()
    assert (back / "policies" / "selfsup-round1-1" / "config.json").exists()
    assert not (back / "policies" / "no-row-1").exists()


@pytest.mark.slow
def test_a_row_with_a_finished_exam_is_not_trained_again(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan.model_copy(update={"portions": ((Row.SFT, Row.SELFSUP),), "seeds": (1,)})
    for group in plan.exam.groups:
        diary = Diary(tmp_path / "exams" / "sft-1" / f"{group.value}.jsonl")
        for number in range(plan.exam.rounds):
            diary.add(f"round {number}", [found("p", None, 0.0, number)])
    asked: list[Row] = []
    monkeypatch.setattr(Experiment, "policy", lambda self, row, seed: asked.append(row))
    monkeypatch.setattr(Experiment, "_examine", lambda self, rows, group, seed: None)
    Experiment(plan, tmp_path, bench(plan, tmp_path), print).run()
    assert asked == [Row.SELFSUP]


@pytest.mark.slow
def test_the_driver_needs_no_database_and_no_tracker(tmp_path: Path) -> None:
    """A lent GPU machine has no database, no tracker, no DVC and no Prefect."""
    absent = ("duckdb", "polars", "mlflow", "prefect", "dvc")
    code = (
        f"import sys\nfor name in {absent}: sys.modules[name] = None\n"
        "import benchmarks.ablation.__main__, benchmarks.ablation.headroom, tasks.pretrain\n"
        "import cudal1.train.grpo, cudal1.train.sft\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
