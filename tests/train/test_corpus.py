"""Tests of the text that the embedded policy is trained on."""

from __future__ import annotations

import ast
import itertools
import random
import re
from itertools import islice
from statistics import fmean
from typing import Any

import pytest

from cudal1.problem import DeviceClass, Problem, Split
from cudal1.suite import generator
from cudal1.teachers import Kind, Rewrite, compose, places, variant
from cudal1.teachers.rule import Rule
from cudal1.teachers.rules.knobs import KNOBS
from cudal1.train.surroundings import surround
from tasks import pretrain

NAMES = sorted(
    (family.name for family in (*generator.FAMILIES, *generator.KNOBS)), key=len, reverse=True
)


def operations(name: str) -> list[str]:
    """Return a generated problem's operations, from its name."""
    found = re.findall("|".join(NAMES), name)
    assert "_".join(found) == name
    return found


def problem_source(index: int) -> str:
    return generator.generate(
        8, index, device_class=DeviceClass.CPU, num_stages=1 + index % 3, split=Split.TRAIN
    ).source


@pytest.mark.slow
def test_one_seed_gives_the_same_documents_and_another_seed_gives_others() -> None:
    assert list(pretrain.documents(5, 30)) == list(pretrain.documents(5, 30))
    assert list(pretrain.documents(5, 30)) != list(pretrain.documents(6, 30))


def test_a_larger_number_of_documents_begins_with_the_same_ones() -> None:
    assert list(islice(pretrain.documents(5, 40), 20)) == list(pretrain.documents(5, 20))


@pytest.mark.slow
def test_no_document_is_about_a_reserved_combination(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    generate = generator.generate

    def watched(*arguments: Any, **settings: Any) -> Problem:
        problem = generate(*arguments, **settings)
        made.append(problem.name)
        return problem

    monkeypatch.setattr(generator, "generate", watched)
    assert len(list(pretrain.documents(5, 400))) == len(made) == 400
    combined = [operations(name) for name in made]
    assert not any(map(generator.is_reserved, combined))
    assert sum(len(names) > 1 for names in combined) > 200


def test_a_document_is_a_question_with_an_answer_in_the_chats_format() -> None:
    for document in pretrain.documents(5, 30):
        question, answer = document.split("<|end|>\n<|assistant|>\n")
        assert question.startswith("<|user|>\n")
        assert answer.endswith("<|end|>\n")
        assert "class ModelNew" in answer or "```" in answer


@pytest.mark.parametrize("index", range(12))
def test_surroundings_are_python_in_the_problems_format(index: int) -> None:
    tree = ast.parse(surround(problem_source(index), random.Random(index)))
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert names == {"Model", "get_inputs", "get_init_inputs"}


def test_surroundings_that_keep_the_operations_keep_the_places_to_rewrite() -> None:
    kept = 0
    for index in range(60):
        source = problem_source(index)
        before = [place.families for place in places(source)]
        after = [place.families for place in places(surround(source, random.Random(index)))]
        rest = iter(after)
        kept += all(families in rest for families in before)
    assert kept >= 60 * 0.6


def test_surroundings_are_reproducible_and_differ() -> None:
    source = problem_source(1)
    first, again, other = (surround(source, random.Random(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first != source


@pytest.mark.slow
def test_errors_of_a_text_are_correlated(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Rewrite] = []

    def watched(*arguments: Any, **settings: Any) -> Rewrite:
        rewrite = variant(*arguments, **settings)
        if settings["weights"].kinds is not pretrain.SHOWN:  # exemplars are never wrong
            made.append(rewrite)
        return rewrite

    monkeypatch.setattr(pretrain, "variant", watched)
    list(pretrain.documents(5, 600))
    is_wrong = [[choice.kind is Kind.WRONG for choice in rewrite.choices] for rewrite in made]
    pairs = [pair for places in is_wrong for pair in itertools.pairwise(places)]
    overall = fmean(first for first, _ in pairs)
    after_a_wrong_one = fmean(second for first, second in pairs if first)
    assert after_a_wrong_one > 1.25 * overall


@pytest.fixture(scope="module")
def answers() -> list[str]:
    """Return the answers in a part of the pretraining texts."""
    text = "\n".join(pretrain.documents(5, 1500))
    return [document.split("<|assistant|>")[1] for document in text.split("<|user|>")[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("rule", KNOBS, ids=lambda rule: rule.family)
def test_every_form_of_a_knob_occurs(rule: Rule, answers: list[str]) -> None:
    """A form that never occurs in pretraining is never tried by a policy."""
    for form in rule.mid:
        last = form.strip().splitlines()[-1]
        written = [re.sub("_([uvwz])", rf"self.\g<1>{k}", last) for k in (1, 2, 3, 4)]
        lines = [line.replace("_x", "x") for line in written]
        assert any(line in answer for answer in answers for line in lines), form


def test_scores_of_a_text_follow_from_its_forms() -> None:
    """A form is worth the same in both exemplars; no form is the best in all texts."""
    (rule,) = [rule for rule in KNOBS if rule.family == "long_order"]
    best: set[int | None] = set()
    for index in range(20):
        rng = random.Random(index)
        source = generator.generate(
            8, index, device_class=DeviceClass.CUDA, num_stages=1, families=[rule.family]
        ).source
        forms = [compose(source, [n]) for n in range(len(rule.mid))]
        speeds = pretrain.Speeds(rng, forms[0])
        scores = [speeds.score(form) for form in forms]
        assert scores == pytest.approx([speeds.score(form) for form in forms], rel=0.05)
        best.add(max(range(len(forms)), key=lambda n: scores[n]))
    assert len(best) > 4


@pytest.mark.slow
def test_lessons_in_reading_are_reproducible_and_mostly_no_copies() -> None:
    lessons = list(pretrain.lessons_in_reading(3, 60))
    assert lessons == list(pretrain.lessons_in_reading(3, 60))
    for prompt, answer in lessons:
        assert ", score " in prompt
        assert "class ModelNew" in answer
    copies = sum(answer.strip("`").removeprefix("python").strip() in p for p, answer in lessons)
    assert copies < 20
