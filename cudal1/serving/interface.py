"""The HTTP interface: submissions, answers, problems, and the server's own state.

Every question goes to the rows of the client that asks. What belongs to another client, and what
does not exist, is answered alike.
"""

from __future__ import annotations

import html
import shutil
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.security import HTTPBearer
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from cudal1.candidate import Candidate
from cudal1.errors import StoreError, SuiteError
from cudal1.problem import Problem
from cudal1.record import content_id
from cudal1.serving.bell import Bell, within
from cudal1.serving.bench import Rules
from cudal1.serving.clients import Client
from cudal1.serving.judging_loop import JudgingLoop
from cudal1.serving.limits import Quotas, RefusedError
from cudal1.serving.messages import (
    Answer,
    Answers,
    Asks,
    Batch,
    Health,
    ListedProblem,
    Problems,
    State,
    Submission,
)
from cudal1.serving.metrics import Metrics
from cudal1.serving.store import CollisionError, FullError, Received, SubmissionStore
from cudal1.suite.loader import problem_of

MAX_WAIT_S = 60.0
"""Seconds that one request may wait for a verdict."""
PAGE = 100
"""Answers that are read at a time."""
MAX_SAID = 300
"""Characters of what is said of a malformed request."""
MIN_FREE_BYTES = 1 << 30
"""Bytes of the disk that must be free for a submission to be taken."""
MAY_NOT_OWN = "your token allows no own problems; name one that /v1/problems lists"

Wait = Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="Seconds to wait for a verdict")]
After = Annotated[
    int, Query(ge=0, lt=1 << 63, description="The number of the last answer that you have")
]


class Catalogue:
    """The problems that may be named.

    Args:
        problems: the problems of the server's suites.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.listed = sorted(problems, key=lambda each: (each.level, each.number, each.suite))
        self.by_id: Mapping[str, Problem] = {each.id: each for each in problems}
        self._by_name = {f"{each.level}/{each.number}": each for each in reversed(self.listed)}
        self._by_name |= {name: each for each in problems for name in (each.key, each.id)}

    def find(self, name: str) -> Problem | None:
        """Return the problem of a key, an id, or LEVEL/NUMBER."""
        return self._by_name.get(name)


class Interface:
    """The handlers of the interface.

    Args:
        folder: the server's folder, of which the disk is looked at.
        store: the durable queue.
        loop: judges what is in it.
        catalogue: the problems.
        rules: what is judged by.
        bell: rings at each answer.
        quotas: counts a batch's submissions.
        metrics: counts everything.
        knows: returns whether a client has not been removed.
    """

    def __init__(
        self,
        folder: Path,
        store: SubmissionStore,
        loop: JudgingLoop,
        catalogue: Catalogue,
        rules: Rules,
        *,
        bell: Bell,
        quotas: Quotas,
        metrics: Metrics,
        knows: Callable[[Client], bool],
    ) -> None:
        self._folder = folder
        self._store = store
        self._loop = loop
        self._catalogue = catalogue
        self._rules = rules
        self._bell = bell
        self._quotas = quotas
        self._metrics = metrics
        self._knows = knows

    def app(self, version: str) -> FastAPI:
        """Return the application."""
        app = FastAPI(
            title="cudal1",
            version=version,
            description="A judge of GPU code: is a candidate correct, and by how much faster?",
            docs_url=None,
            redoc_url=None,
            dependencies=[Depends(HTTPBearer(auto_error=False))],
        )
        app.add_exception_handler(RefusedError, _refused)
        app.add_exception_handler(StoreError, _store_failed)
        app.add_exception_handler(RequestValidationError, _malformed)
        app.post("/v1/submissions", response_model=Answer)(self.submit)
        app.get("/v1/submissions/{submission_id}", response_model=Answer)(self.answer)
        app.post("/v1/batches", response_model=Answers)(self.submit_batch)
        app.get("/v1/answers", response_model=Answers)(self.answers)
        app.get("/v1/stream", response_class=EventSourceResponse)(self.stream)
        app.get("/v1/problems", response_model=Problems)(self.problems)
        app.get("/v1/problems/{problem_id}", response_model=Problem)(self.problem)
        app.get("/metrics", response_class=Response)(self.metrics)
        app.get("/health", response_model=Health)(self.health)
        page = cache(lambda: page_of(app.openapi()))
        app.get("/docs", response_class=HTMLResponse, include_in_schema=False)(
            lambda: HTMLResponse(page())
        )
        return app

    async def submit(self, submission: Submission, request: Request, wait_s: Wait = 0.0) -> Answer:
        """Submit a candidate. The same submission again only asks for its answer."""
        (answer,) = await self._take(_client(request), [submission])
        return await self._awaited(_client(request), answer, wait_s)

    async def submit_batch(self, batch: Batch, request: Request) -> Answers:
        """Submit several candidates; all of them are taken, or none."""
        await self._quotas.take(_client(request), len(batch.submissions) - 1)
        return Answers(answers=tuple(await self._take(_client(request), batch.submissions)))

    async def answer(self, submission_id: str, request: Request, wait_s: Wait = 0.0) -> Answer:
        """Return the answer to one of your submissions, or wait for it."""
        client = _client(request)
        answer = await run_in_threadpool(self._store.answer, client.name, submission_id)
        if answer is None:
            raise HTTPException(404, "you have submitted nothing of this id")
        return await self._awaited(client, answer, wait_s)

    def answers(self, request: Request, after: After = 0) -> Answers:
        """Return your answers in their order, at most 100 behind a number."""
        found = self._store.answered(_client(request).name, after=after, limit=PAGE)
        return Answers(answers=tuple(found))

    async def stream(self, request: Request, after: After = 0) -> AsyncIterator[ServerSentEvent]:
        """Stream your answers as they come, as server-sent events.

        An event's id is the answer's number. With the header Last-Event-ID, or `after`, the stream
        goes on behind it.
        """
        known, last = _client(request), request.headers.get("last-event-id", "")
        client = known.name
        if last.isascii() and last.isdigit() and len(last) < 16:
            after = int(last)
        while True:
            event = self._bell.event(client)
            found = await run_in_threadpool(self._store.answered, client, after=after, limit=PAGE)
            if not self._knows(known):
                return
            for answer in found:
                yield ServerSentEvent(data=answer, event="answer", id=str(answer.number))
                after = answer.number or after
            if not found:
                await within(event, MAX_WAIT_S)

    def problems(self) -> Problems:
        """List the problems that can be submitted to."""
        return Problems(
            problems=tuple(
                ListedProblem(
                    key=each.key, id=each.id, level=each.level, number=each.number, split=each.split
                )
                for each in self._catalogue.listed
            )
        )

    def problem(self, problem_id: str) -> Problem:
        """Return a problem with its source, by its id."""
        found = self._catalogue.by_id.get(problem_id)
        if found is None:
            raise HTTPException(404, "there is no problem of this id; see /v1/problems")
        return found

    def metrics(self, request: Request) -> Response:
        """Return the server's numbers for Prometheus, to a token with `metrics: true`."""
        if not _client(request).metrics:
            raise HTTPException(403, "your token may not read metrics")
        text = self._metrics.text(
            self._store.num_waiting, self._store.waiting_clients(), judges=self._loop.is_judging
        )
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    def health(self) -> Health:
        """Say whether the server judges."""
        loop = self._loop
        return Health(is_judging=loop.is_judging, complaint=loop.complaint, device=loop.device_kind)

    # ---------------------------------------------------------------------------------------------

    async def _take(self, client: Client, given: Sequence[Submission]) -> list[Answer]:
        """Store submissions and return their answers as they are."""
        return await run_in_threadpool(self._store_all, client, given)

    def _store_all(self, client: Client, given: Sequence[Submission]) -> list[Answer]:
        received = [self._received(client, each) for each in given]
        if shutil.disk_usage(self._folder).free < MIN_FREE_BYTES:
            raise RefusedError(507, "the server's disk is nearly full; tell its operator", 600)
        try:
            found, num_new = self._store.add(client.name, received, max_waiting=client.max_waiting)
        except FullError as error:
            raise RefusedError(429, str(error), 10) from error
        except CollisionError as error:
            raise HTTPException(409, str(error)) from error
        if num_new:
            self._metrics.submitted(client.name, num_new)
            self._loop.notify()
        return found

    def _received(self, client: Client, given: Submission) -> Received:
        if given.problem_source is None:
            assert given.problem is not None
            problem = self._catalogue.find(given.problem)
            if problem is None:
                raise HTTPException(404, "there is no such problem; see /v1/problems")
        elif not client.own_problems:
            raise HTTPException(403, MAY_NOT_OWN)
        else:
            try:
                problem = problem_of(
                    given.problem_source,
                    Path(f"{client.name}.py"),
                    device_class=self._rules.device_class,
                )
            except SuiteError as error:
                raise HTTPException(422, f"problem_source: {error}") from error
        candidate = Candidate(problem_id=problem.id, source=given.source)
        asks = Asks(**{name: getattr(given, name) for name in Asks.model_fields})
        protocol = asks.verdict_protocol(self._rules.protocol)
        return Received(
            content_id(problem.id, given.source, protocol.id),
            problem,
            candidate,
            asks,
            is_own=given.problem_source is not None,
        )

    async def _awaited(self, client: Client, answer: Answer, wait_s: float) -> Answer:
        until = time.monotonic() + wait_s
        while answer.state is State.WAITING and (left := until - time.monotonic()) > 0:
            event = self._bell.event(client.name)
            found = await run_in_threadpool(self._store.answer, client.name, answer.id)
            assert found is not None
            answer = found
            if answer.state is State.WAITING:
                await within(event, left)
        return answer


def _client(request: Request) -> Client:
    return request.state.client


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    headers = {} if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
    return JSONResponse({"detail": str(error)}, error.status, headers)


def _malformed(_: Request, error: Exception) -> Response:
    """Name the first fault; what was sent is not sent back."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    said = f"{where}: {first['msg'].removeprefix('Value error, ')}".encode(
        "ascii", "backslashreplace"
    ).decode()
    return JSONResponse({"detail": said[:MAX_SAID]}, 422)


def _store_failed(_: Request, __: Exception) -> Response:
    return JSONResponse({"detail": "the server cannot store it; tell its operator"}, 503)


def page_of(schema: Mapping[str, Any]) -> str:
    """Return the OpenAPI page: no script, and nothing that is loaded from elsewhere."""
    rows = [
        f"<h2><code>{html.escape(method.upper())} {html.escape(path)}</code></h2>"
        f"<p>{html.escape(said.get('description', said.get('summary', '')))}</p>"
        + "".join(
            f"<p><code>{html.escape(each['name'])}</code> ({html.escape(each['in'])}): "
            f"{html.escape(each.get('description', ''))}</p>"
            for each in said.get("parameters", ())
        )
        + _body_of(said)
        for path, methods in schema["paths"].items()
        for method, said in methods.items()
    ]
    forms = [
        f"<h2 id='{html.escape(name)}'>{html.escape(name)}</h2>"
        f"<p>{html.escape(form.get('description', ''))}</p><dl>"
        + "".join(
            f"<dt><code>{html.escape(field)}</code></dt>"
            f"<dd>{html.escape(said.get('description', ''))}</dd>"
            for field, said in form.get("properties", {}).items()
        )
        + "</dl>"
        for name, form in schema.get("components", {}).get("schemas", {}).items()
    ]
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'><meta name='color-scheme' "
        "content='light dark'><title>cudal1 serve</title><style>body{max-width:50rem;margin:auto;"
        "padding:1rem;font-family:sans-serif}</style><h1>cudal1 serve</h1>"
        f"<p>{html.escape(schema['info']['description'])} The same for machines: "
        "<a href='/openapi.json'>openapi.json</a>. Send your token with each request: "
        f"<code>Authorization: Bearer TOKEN</code>.</p>{''.join(rows)}<h1>Messages</h1>"
        f"{''.join(forms)}</html>"
    )


def _body_of(said: Mapping[str, Any]) -> str:
    schema = (
        said.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    )
    name = schema.get("$ref", "").rpartition("/")[2]
    return f"<p>Body: <a href='#{html.escape(name)}'>{html.escape(name)}</a></p>" if name else ""
