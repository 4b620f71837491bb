"""Tests of the server over HTTP, with a played device: what clients get, and what they do not."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError

from cudal1.serving.client import RemoteError, RemoteJudge
from cudal1.serving.messages import MAX_BATCH, Batch, State, Submission
from cudal1.verdict import Status
from tests.serving.conftest import Running
from tests.serving.played import PROBLEMS

pytestmark = pytest.mark.slow

KEY = PROBLEMS[0].key


def submit(client: httpx2.Client, source: str, **fields: Any) -> httpx2.Response:
    content = {"problem": KEY, "source": source, **fields}
    return client.post("/v1/submissions", json=content, params={"wait_s": 60})


def test_a_verdict_is_polled_listed_and_submitted_once(server: Running) -> None:
    with server.client("alice") as alice:
        answer = submit(alice, "polled").json()
        assert (answer["state"], answer["speedup"]) == ("done", 4.0)
        assert alice.get(f"/v1/submissions/{answer['id']}").json() == answer
        assert submit(alice, "polled").json() == answer
        assert answer in alice.get("/v1/answers").json()["answers"]
    judged = (server.folder / "judged").read_text().split("\n")
    assert len([line for line in judged if answer["verdict"]["candidate_id"] in line]) == 1


def test_the_client_judges_many_and_returns_them_in_order(server: Running) -> None:
    sources = [f"many {number}" + " wrong" * (number % 2) for number in range(MAX_BATCH + 9)]
    with RemoteJudge(server.url, server.tokens["alice"]) as judge:
        assert [each.key for each in judge.problems()] == [each.key for each in PROBLEMS]
        assert judge.problem(PROBLEMS[1].id) == PROBLEMS[1]
        found = judge.judge_many([Submission(problem=KEY, source=each) for each in sources])
        statuses = [each.verdict.status for each in found if each.verdict]
        assert statuses == [
            Status.INCORRECT if "wrong" in source else Status.CORRECT for source in sources
        ]
        assert judge.judge("1/2", "checked", timing=False).speedup is None
        assert judge.judge(KEY, "refuse").state is State.REFUSED
        with pytest.raises(RemoteError, match="404: there is no such problem"):
            judge.judge("nothing", "x")


def test_the_client_sends_long_sources_in_batches_that_the_server_takes(server: Running) -> None:
    sources = [f"long {number} " + "é" * 70_000 for number in range(20)]
    with RemoteJudge(server.url, server.tokens["alice"]) as judge:
        found = judge.judge_many([Submission(problem=KEY, source=each) for each in sources])
    assert [each.state for each in found] == [State.DONE] * 20


def events(client: httpx2.Client, count: int, **headers: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the first answers of a stream, each with its event's id."""
    found: list[tuple[str, dict[str, Any]]] = []
    data = ""
    with client.stream("GET", "/v1/stream", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            data = value if name == "data" else data
            if name == "id":
                found.append((value, json.loads(data)))
            if len(found) == count:
                break
    return found


def test_answers_are_streamed_as_they_come_and_from_where_a_stream_ended(server: Running) -> None:
    with server.client("bob") as bob:
        first = submit(bob, "before").json()
        later = threading.Timer(0.3, lambda: submit(bob, "during"))
        later.start()
        found = events(bob, 2)
        later.join()
        assert found[0] == ("1", first)
        assert found[1][1]["state"] == "done"
        assert events(bob, 1, **{"last-event-id": "1"}) == found[1:]


def test_a_client_never_sees_another_s_verdict(server: Running) -> None:
    with server.client("alice") as alice, server.client("bob") as bob:
        answer = submit(alice, "a secret").json()
        before = bob.get("/v1/answers").json()
        unknown = bob.get("/v1/submissions/0123456789abcdef")
        refused = bob.get(f"/v1/submissions/{answer['id']}")
        assert (refused.status_code, refused.content) == (404, unknown.content)
        assert bob.get("/v1/answers").json() == before
        assert bob.get("/metrics").status_code == 403


@pytest.mark.parametrize("path", ["/v1/problems", "/v1/answers", "/v1/stream", "/metrics", "/x"])
@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic YTpi", "Bearer é"])
def test_no_path_answers_without_a_token(server: Running, path: str, header: str) -> None:
    headers = {"Authorization": header.encode("utf-8")}
    response = httpx2.get(server.url + path, headers=headers, trust_env=False)
    assert response.status_code in (401, 429)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"problem": None}, "problem"),
        ({"problem_source": "class Model: ..."}, "either"),
        ({"source": ""}, "source"),
        ({"source": "\ud800"}, "source"),
        ({"source": 5}, "source"),
        ({"mode": "fast"}, "mode"),
        ({"precision": "double"}, "precision"),
        ({"timing": "perhaps"}, "timing"),
        ({"unsafe": True}, "unsafe"),
        ({"seed": 1}, "seed"),
    ],
)
def test_a_malformed_submission_is_refused_and_named(
    server: Running, fields: dict[str, Any], said: str
) -> None:
    content = {"problem": KEY, "source": "x", **fields}
    with server.client("alice") as alice:
        response = alice.post(
            "/v1/submissions",
            content=json.dumps(content).encode(),
            headers={"content-type": "application/json"},
        )
        assert response.status_code == 422
        assert said in response.text


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b'{"a":' * 50_000, b"null", b'"' + b"x" * 9999]
)
def test_a_body_that_is_no_submission_is_refused(server: Running, body: bytes) -> None:
    with server.client("alice") as alice:
        for path in ("/v1/submissions", "/v1/batches"):
            response = alice.post(path, content=body, headers={"content-type": "application/json"})
            assert response.status_code in (400, 422), response.text


@pytest.mark.parametrize(
    "content",
    [
        {"submissions": [1] * 999},
        {"submissions": [{}] * 999},
        {"submissions": [{f"field {number}": 1 for number in range(999)}] * 99},
        {f"field {number}": 1 for number in range(999)},
    ],
)
def test_few_of_a_body_s_many_mistakes_are_looked_for(content: dict[str, Any]) -> None:
    for message in (Batch, Submission):
        with pytest.raises(ValidationError) as error:
            message.model_validate(content)
        assert error.value.error_count() < 9


@pytest.mark.parametrize("after", ["-1", "x", "9" * 19, "9" * 400])
def test_a_number_that_no_answer_has_is_refused(server: Running, after: str) -> None:
    with server.client("alice") as alice:
        for path in ("/v1/answers", "/v1/stream"):
            assert alice.get(path, params={"after": after}).status_code == 422


def test_own_problems_need_a_token_that_allows_them(server: Running) -> None:
    fields = {"problem": None, "problem_source": "class Model: 'mine'\n"}
    with server.client("alice") as alice, server.client("own") as own:
        refused = submit(alice, "x", **fields)
        assert refused.status_code == 403
        assert "no own problems" in refused.text
        assert submit(own, "x", **fields).json()["state"] == "done"
        assert submit(own, "x", problem=None, problem_source="class Model(").status_code == 422


def test_limits_of_a_client_are_kept(server: Running) -> None:
    with server.client("little") as little:
        assert submit(little, "x" * 3000).status_code == 413
        chunked = little.post("/v1/submissions", content=iter([b"x" * 1500] * 9))
        assert chunked.status_code == 413
        many = {"submissions": [{"problem": KEY, "source": f"refuse {n}"} for n in range(4)]}
        full = little.post("/v1/batches", json=many)
        assert full.status_code == 429
        assert "more than 3" in full.text
        assert little.get("/v1/answers").json() == {"answers": []}
        with little.stream("GET", "/v1/stream") as one, little.stream("GET", "/v1/stream") as two:
            assert (one.status_code, two.status_code) == (200, 200)
            assert little.get("/v1/problems").status_code == 429
        deadline = time.monotonic() + 60
        while little.get("/v1/problems").status_code == 429:  # the server hears of their end later
            assert time.monotonic() < deadline


def test_a_batch_is_limited_in_number(server: Running) -> None:
    many = {"submissions": [{"problem": KEY, "source": "x"}] * (MAX_BATCH + 1)}
    with server.client("alice") as alice:
        assert alice.post("/v1/batches", json=many).status_code == 422


def test_metrics_count_and_the_page_loads_nothing(server: Running) -> None:
    with server.client("operator") as operator:
        submit(operator, "counted")
        text = operator.get("/metrics").text
        assert 'cudal1_answers_total{client="operator",status="correct"} 1.0' in text
        assert "cudal1_judging 1.0" in text
        for token in server.tokens.values():
            assert token not in text
        page = operator.get("/docs").text
        assert "/v1/submissions" in page
        assert "<script" not in page
        assert "https://" not in page
        assert "/v1/stream" in operator.get("/openapi.json").json()["paths"]


def test_many_silent_connections_crowd_no_client_out(server: Running) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(200)]
    for each in silent:
        each.sendall(b"POST /v1/submissions HTTP/1.1\r\nHost: a\r\nX-Slow: ")
    with server.client("alice") as alice:
        assert submit(alice, "beside silent ones").json()["state"] == "done"
    ended = 0
    for each in silent:
        each.settimeout(0.05)
        try:
            ended += each.recv(1) == b""
        except ConnectionResetError:
            ended += 1
        except TimeoutError:
            pass
        each.close()
    assert ended >= 100


def test_a_websocket_and_nonsense_end_the_connection(server: Running) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    for sent in (
        b"\x16\x03\x01\x02\x00\x01\x00\n\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(sent)
            connection.settimeout(60)
            found = b""
            while more := connection.recv(4096):
                found += more
            assert found.startswith(b"HTTP/1.1 4")
