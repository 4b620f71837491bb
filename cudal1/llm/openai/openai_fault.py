"""Reads a server's own words about an error, and finds the HTTP status that they stand for.

Gateways put errors into bodies of status 200. Servers write them in many forms: OpenAI's `error`,
FastAPI's `detail`, a bare `message`, text, a page of HTML, an event of a stream. Such a body is
given the status that it should have come with, so that it is retried, booked and refused like any
other answer of that status. Nothing in a body is trusted.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from cudal1.record import Record

UNKNOWN = 520
"""Status of an error of unknown kind: the request is tried again, and may have cost."""
_MAX_READ = 20_000
"""Characters of a body in which words are looked for, unless it is JSON."""
MAX_SAID = 200
"""The most characters of a server's words that are repeated."""
_DEPTH = 6
_ERROR_KEYS = ("error", "errors", "detail", "details", "fault", "base_resp", "exception")
_CODE_KEYS = (
    "http_status",
    "status_code",
    "statuscode",
    "http_code",
    "code",
    "status",
    "error_code",
    "errorcode",
    "type",
    "__type",
)
_WORD_KEYS = (
    "message",
    "msg",
    "error_message",
    "error_msg",
    "errormessage",
    "status_msg",
    "faultstring",
    "error_description",
    "title",
    "detail",
    "details",
    "error",
    "errors",
    "reason",
    "description",
    "fault",
    "base_resp",
    "exception",
    "metadata",
    "raw",
)
_NO_FAULT = (None, "", False, 0, {}, [])
_SAID_STATUS = re.compile(
    r"(?:^|\b(?:http|status|code)(?:[ _]?(?:code|status))?[ :=]{1,3})([45]\d\d)\b", re.IGNORECASE
)
_IS_NUMBER = re.compile(r"\s*([45]\d\d)\b")
_INVISIBLE_TEXT = re.compile(r"<(script|style)\b.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_TITLE = re.compile(r"<title\b[^<>]*>([^<]*)", re.IGNORECASE)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SUFFIX = re.compile(r"(?:_(?:error|exception))+$")
_STATUS_OF = {
    _SUFFIX.sub("", status.name.lower()): status.value for status in HTTPStatus if status >= 400
} | {
    "authentication": 401,
    "unauthenticated": 401,
    "invalid_api_key": 401,
    "invalid_key": 401,
    "incorrect_api_key": 401,
    "access_denied": 403,
    "permission": 403,
    "permission_denied": 403,
    "billing": 402,
    "insufficient_balance": 402,
    "model_not_found": 404,
    "invalid_request": 400,
    "invalid_argument": 400,
    "context_length_exceeded": 400,
    "validation": 422,
    "rate_limit": 429,
    "rate_limited": 429,
    "rate_limit_exceeded": 429,
    "throttling": 429,
    "resource_exhausted": 429,
    "insufficient_quota": 429,
    "quota_exceeded": 429,
    "overloaded": 529,
    "server": 500,
    "api": 500,
    "internal": 500,
    "unavailable": 503,
    "engine_overloaded": 503,
    "model_overloaded": 503,
    "timeout": 504,
    "deadline_exceeded": 504,
}
"""The status of words by which servers name errors, without the suffix `error`."""


class Fault(Record):
    """An error that a body reports."""

    status: int
    said: str
    """The server's words, in one line."""


def fault_in(body: str) -> Fault | None:
    """Return the error in a body that came with success, or None where it reports none."""
    documents = documents_in(body)
    for document in documents:
        for item in document if isinstance(document, list) else [document]:
            if (error := _error_in(item)) is not None:
                said = _line(_said(error)) or _line([json.dumps(error)])
                return Fault(status=_status(error, said) or UNKNOWN, said=said)
    if documents:
        return None
    said = words_in(body)
    status = _named_in(said)
    return None if status is None else Fault(status=status, said=said)


def words_in(body: str) -> str:
    """Return the words of a body of any kind, in one line; empty where it has none."""
    documents = documents_in(body)
    for document in documents:
        if said := _line(_said(document)):
            return said
    if documents:
        return _line([body])
    text = _INVISIBLE_TEXT.sub(" ", body[:_MAX_READ])
    title = _TITLE.search(text)
    return _line([title[1]] if title and title[1].strip() else [_TAG.sub(" ", text)])


def documents_in(body: str) -> list[Any]:
    """Return the body's JSON, or that of each event of a stream; empty where there is none."""
    try:
        return [json.loads(body)]
    except (ValueError, RecursionError):
        pass
    documents: list[Any] = []
    for line in body.split("\n"):
        if line.startswith("data:"):
            try:
                documents.append(json.loads(line.removeprefix("data:")))
            except (ValueError, RecursionError):
                continue
    return documents


def _error_in(document: Any) -> Mapping[str, Any] | None:
    """Return the object in a document that reports an error; None where it is an answer."""
    if not isinstance(document, Mapping):
        return None
    choices = document.get("choices")
    choices = [c for c in choices if isinstance(c, Mapping)] if isinstance(choices, list) else []
    has_failed = any(choice.get("finish_reason") == "error" for choice in choices)
    if not has_failed and any(map(_is_answer, choices)):
        return None
    for holder in (document, *choices):
        if any(part not in _NO_FAULT for part in _parts(holder)):
            return {key: value for key, value in holder.items() if key != "choices"}
    if has_failed:
        return {"error": "finish_reason: error"}
    return document if not choices and _line(_said(document)) else None


def _parts(holder: Mapping[str, Any]) -> list[Any]:
    """Return the values that an object holds under the keys of errors."""
    return [value for key, value in holder.items() if key.lower() in _ERROR_KEYS]


def _is_answer(choice: Mapping[str, Any]) -> bool:
    """Return whether a choice holds text or calls that a model wrote."""
    for name in ("message", "delta"):
        message = choice.get(name)
        if isinstance(message, Mapping) and any(
            message.get(part) not in _NO_FAULT
            for part in ("content", "refusal", "tool_calls", "reasoning_content", "reasoning")
        ):
            return True
    return False


def _said(value: Any, depth: int = _DEPTH) -> Iterator[str]:
    """Yield the texts in an error that are meant for people."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth:
        for item in value:
            yield from _said(item, depth - 1)
    elif isinstance(value, Mapping) and depth:
        where = value.get("loc")
        if isinstance(where, list):  # FastAPI's path of the wrong field
            yield f"{'.'.join(map(str, where))}:"
        for key, item in value.items():
            if key.lower() in _WORD_KEYS:
                yield from _said(item, depth - 1)


def _status(error: Mapping[str, Any], said: str) -> int | None:
    """Return the status of an error: by the codes inside, by those beside them, or by its words."""
    inside = list(_mappings(_parts(error)))
    for holder in (*inside, error):
        for name in _CODE_KEYS:
            for key, value in holder.items():
                if key.lower() == name and (status := _status_of(value)) is not None:
                    return status
    if any("loc" in holder and "msg" in holder for holder in inside):
        return HTTPStatus.UNPROCESSABLE_ENTITY
    return _named_in(said)


def _mappings(value: Any, depth: int = _DEPTH) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in a value, the outer ones first."""
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    if isinstance(value, list) and depth:
        for item in value:
            yield from _mappings(item, depth - 1)


def _status_of(code: Any) -> int | None:
    """Return the HTTP status that a code names, as a number or in a server's usual words."""
    if isinstance(code, bool) or not isinstance(code, int | str):
        return None
    if isinstance(code, int):
        return code if 400 <= code < 600 else None
    if number := _IS_NUMBER.match(code):
        return int(number[1])
    last = re.split(r"[#/]", code[-80:])[-1]
    words = re.split(r"[^A-Za-z]+", _HUMP.sub("_", last))
    return _STATUS_OF.get(_SUFFIX.sub("", "_".join(filter(None, words)).lower()))


def _named_in(said: str) -> int | None:
    """Return the status that a text begins with, names as a status, or equals the phrase of."""
    number = _SAID_STATUS.search(said)
    return int(number[1]) if number else _status_of(said) if len(said) < 40 else None


def _line(texts: Iterator[str] | Sequence[str]) -> str:
    """Return the texts, each once, in one printable line of at most `MAX_SAID` characters."""
    kept: list[str] = []
    for text in texts:
        plain = html.unescape(text[:_MAX_READ])
        line = " ".join("".join(c if c.isprintable() else " " for c in plain).split())
        if line and line not in kept:
            kept.append(line)
        if sum(map(len, kept)) > MAX_SAID:
            break
    return " ".join(kept)[:MAX_SAID]
