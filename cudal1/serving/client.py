"""Ask a server for verdicts, from any program.

    judge = RemoteJudge("http://127.0.0.1:8088", token)
    answer = judge.judge("cudal1/L1/08_silu", source)
    answer.verdict.status, answer.speedup

Submissions are idempotent, so every request is repeated until the server answers: through restarts
of the server, and where it asks for patience.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

try:
    import httpx2
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "cudal1.serving.client needs the extra serve: pip install 'cudal1[serve]'", name=error.name
    ) from error

from cudal1.errors import CudaL1Error
from cudal1.problem import Problem
from cudal1.serving.messages import (
    MAX_BATCH,
    Answer,
    Answers,
    Batch,
    ListedProblem,
    Problems,
    State,
    Submission,
)

WAIT_S = 30.0
"""Seconds that one request waits for a verdict."""
REQUEST_LIMIT_S = 30.0
"""Seconds that a request may take besides."""
MAX_PAUSE_S = 10.0
"""Seconds between two tries at most."""
BATCH_BYTES = 1 << 20
"""Bytes of the JSON of several submissions at most; a server takes 2 MiB."""
PASSING = frozenset({429, 502, 503, 504, 507})
"""Statuses after which the same request may be answered later."""


class RemoteError(CudaL1Error):
    """The server refuses a request, or does not answer in time."""


class RemoteJudge:
    """A judge behind a server; threads may share it.

    Args:
        url: the server's address, such as `http://127.0.0.1:8088`.
        token: the client's token.
        patience_s: seconds for which a request is repeated while the server does not answer.
    """

    def __init__(self, url: str, token: str, *, patience_s: float = 600.0) -> None:
        self._patience_s = patience_s
        self._client = httpx2.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=WAIT_S + REQUEST_LIMIT_S,
            trust_env=False,
        )

    def problems(self) -> tuple[ListedProblem, ...]:
        """Return the problems that can be submitted to."""
        return Problems.model_validate_json(self._ask("GET", "/v1/problems")).problems

    def problem(self, problem_id: str) -> Problem:
        """Return a problem with its source."""
        return Problem.model_validate_json(self._ask("GET", f"/v1/problems/{problem_id}"))

    def judge(self, problem: str, source: str, **asks: Any) -> Answer:
        """Return the answer on one candidate, once there is one.

        Args:
            problem: the problem's key, id, or LEVEL/NUMBER.
            source: a module that defines `ModelNew`.
            asks: fields of `messages.Asks`, such as `timing=False`.

        Raises:
            RemoteError: the server refuses the request, or does not answer.
        """
        (answer,) = self.judge_many([Submission(problem=problem, source=source, **asks)])
        return answer

    def judge_many(self, submissions: Sequence[Submission]) -> list[Answer]:
        """Return the answers on many candidates, in their order, once there are all.

        Raises:
            RemoteError: the server refuses a request, or does not answer.
        """
        found: list[Answer] = []
        waiting: deque[Answer] = deque()
        for batch in _batches(submissions):
            waiting += self.submit(batch)
            while len(waiting) > MAX_BATCH:  # the server lets so many wait and no more
                found.append(self.wait(waiting.popleft()))
        return found + [self.wait(each) for each in waiting]

    def submit(self, submissions: Sequence[Submission]) -> list[Answer]:
        """Submit up to `MAX_BATCH` candidates; return what is known of each.

        Raises:
            RemoteError: the server refuses the request, or does not answer.
        """
        batch = Batch(submissions=tuple(submissions))
        content = batch.model_dump_json(exclude_none=True)
        return list(Answers.model_validate_json(self._ask("POST", "/v1/batches", content)).answers)

    def wait(self, answer: Answer) -> Answer:
        """Return the answer to a submission, once there is one.

        Raises:
            RemoteError: the server refuses the request, or does not answer.
        """
        while answer.state is State.WAITING:
            answer = self.poll(answer.id, wait_s=WAIT_S)
        return answer

    def poll(self, submission_id: str, *, wait_s: float = 0.0) -> Answer:
        """Return what is known of a submission, after waiting for a verdict for a while.

        Raises:
            RemoteError: the server refuses the request, or does not answer.
        """
        text = self._ask("GET", f"/v1/submissions/{submission_id}", wait_s=wait_s)
        return Answer.model_validate_json(text)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _ask(self, method: str, path: str, content: str | None = None, **query: float) -> str:
        until, pause_s, said = time.monotonic() + self._patience_s, 0.1, ""
        headers: Mapping[str, str] = {"content-type": "application/json"} if content else {}
        while True:
            try:
                response = self._client.request(
                    method, path, content=content, params=query or None, headers=headers
                )
                if response.status_code == 200:
                    return response.text
                said = f"{response.status_code}: {_detail(response)}"
                if response.status_code not in PASSING:
                    break
                asked_s = response.headers.get("retry-after", "")
                pause_s = float(asked_s) if asked_s.isdigit() else pause_s
            except httpx2.TransportError as error:
                said = f"no answer ({type(error).__name__}: {error})"
            pause_s = min(pause_s, MAX_PAUSE_S)
            if time.monotonic() + pause_s > until:
                break
            time.sleep(pause_s)
            pause_s *= 2
        raise RemoteError(f"{self._client.base_url}{path}: {said}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _batches(submissions: Sequence[Submission]) -> Iterator[list[Submission]]:
    """Yield the submissions in batches that a server takes by its default limits."""
    batch: list[Submission] = []
    num_bytes = 0
    for each in submissions:
        size = len(each.model_dump_json().encode())
        if batch and (len(batch) == MAX_BATCH or num_bytes + size > BATCH_BYTES):
            yield batch
            batch, num_bytes = [], 0
        batch.append(each)
        num_bytes += size
    if batch:
        yield batch


def _detail(response: httpx2.Response) -> str:
    try:
        said = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return "it gives no reason"
    return said if isinstance(said, str) else str(said)[:500]
