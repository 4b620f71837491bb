"""An answer that another of its group equals is sampled again, a few times at most."""

from __future__ import annotations

from cudal1.train.sampling.again import Again


def code(body: str) -> str:
    return f"```python\nclass ModelNew:\n    def forward(self, x):\n        {body}\n```"


def test_the_second_of_two_equal_answers_waits() -> None:
    again = Again([0, 0, 0], times=1)
    assert again.keeps(0, code("return x + 1"))
    assert not again.keeps(1, code("return x + 1  # once more"))
    assert again.keeps(2, code("return x + 2"))
    assert list(again.rounds()) == [[1]]


def test_answers_of_other_groups_are_no_repetition() -> None:
    again = Again([0, 1], times=1)
    assert again.keeps(0, code("return x"))
    assert again.keeps(1, code("return x"))
    assert list(again.rounds()) == []


def test_answers_without_a_program_are_compared_by_their_words() -> None:
    again = Again([0, 0, 0], times=1)
    assert again.keeps(0, "no code")
    assert not again.keeps(1, "no\n code")
    assert again.keeps(2, "none")


def test_a_repetition_stays_after_the_last_try() -> None:
    again, tried = Again([0, 0], times=2), 0
    assert again.keeps(0, code("return x"))
    assert not again.keeps(1, code("return x"))
    for places in again.rounds():
        tried += 1
        assert places == [1]
        assert again.keeps(1, code("return x")) is (tried == 2)
    assert (tried, again.num_repeated) == (2, 2)


def test_every_turn_has_its_own_tries() -> None:
    again = Again([0, 0, 0], times=1)
    assert again.keeps(0, code("return x"))
    assert not again.keeps(1, code("return x"))
    assert [again.keeps(1, code("return x")) for _ in again.rounds()] == [True]
    assert not again.keeps(2, code("return x")), "the next turn"


def test_without_tries_every_answer_stays() -> None:
    again = Again([0, 0], times=0)
    assert again.keeps(0, code("return x"))
    assert again.keeps(1, code("return x"))
    assert list(again.rounds()) == []
