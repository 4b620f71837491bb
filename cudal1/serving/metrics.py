"""Count what the server does, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from cudal1.verdict import Verdict

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
"""Upper bounds of the histograms' buckets, in seconds."""


class Metrics:
    """The server's counters; each server has its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "cudal1_requests",
            "Requests by client (none: refused before it was known) and status.",
            ("client", "status"),
            registry=self._registry,
        )
        self._request_s = Histogram(
            "cudal1_request_seconds",
            "Seconds from a request's head to the end of its response, waiting included.",
            registry=self._registry,
            buckets=SECONDS,
        )
        self._submissions = Counter(
            "cudal1_submissions", "New submissions.", ("client",), registry=self._registry
        )
        self._answers = Counter(
            "cudal1_answers",
            "Answers by client and by the verdict's status, or refused.",
            ("client", "status"),
            registry=self._registry,
        )
        self._device_s = Counter(
            "cudal1_device_seconds", "Device seconds spent.", ("client",), registry=self._registry
        )
        self._waiting = Gauge(
            "cudal1_waiting", "Submissions that wait.", ("client",), registry=self._registry
        )
        self._is_judging = Gauge(
            "cudal1_judging", "1 while the server can judge.", registry=self._registry
        )

    def requested(self, client: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests.labels(client or "none", str(status)).inc()
        self._request_s.observe(seconds)

    def submitted(self, client: str, amount: int) -> None:
        """Count new submissions."""
        self._submissions.labels(client).inc(amount)

    def answered(self, client: str, said: Verdict | str, seconds: float) -> None:
        """Count an answer and its device seconds."""
        status = "refused" if isinstance(said, str) else said.status.value
        self._answers.labels(client, status).inc()
        self._device_s.labels(client).inc(seconds)

    def text(self, num_waiting: Callable[[str], int], clients: list[str], *, judges: bool) -> bytes:
        """Return all numbers in Prometheus's format."""
        for client in clients:
            self._waiting.labels(client).set(num_waiting(client))
        self._is_judging.set(judges)
        return generate_latest(self._registry)
