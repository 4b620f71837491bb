"""Test that every answer is stored once and billed right, when a server fails and we are killed.

python -m benchmarks.answers.bills [--requests 500] [--kills 2] [--out FOLDER]

A process asks a faulty server (`benchmarks.answers.faulty_server`) as stage `generate` does:
through the official client, into the ledger. It is killed with SIGKILL when the server has seen a
third and two thirds of the requests, and started again until nothing is missing. Then the ledger's
bill is compared with the server's books: for a server that honours Idempotency-Key, and for one
that does not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.arguments import Parser
from cudal1.errors import CudaL1Error
from cudal1.ledger import Ledger
from cudal1.llm.openai.openai_api import OpenAIProvider
from cudal1.llm.provider import has_failed, request_to
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.prompts.prompt import PromptStyle, generation_prompt
from cudal1.services.answers import keep_completion
from cudal1.services.asking import asking
from cudal1.settings.provider_settings import OpenAISettings

RESULTS = Path(__file__).parents[1] / "results"
STAGE = "generate@faulty"
USD_PER_MILLION = {"prompt": 2.0, "completion": 8.0}
ANSWER_TOKENS = 64
MAX_RUNS = 12


def ask_all(folder: Path, url: str, num_requests: int) -> int:
    """Ask everything that the ledger lacks; return how many requests failed for good."""
    provider = OpenAIProvider("faulty", settings(f"{url}/v1"))
    with Ledger.open(folder) as ledger:
        ledger.begin(STAGE)
        num_failed = 0
        with asking(ledger, provider) as line:
            for attempt in range(num_requests):
                prompt = generation_prompt(PROBLEM, style=PromptStyle.COMPACT)
                line.ask(
                    request_to(
                        provider,
                        stage=STAGE,
                        problem=PROBLEM,
                        prompt=prompt,
                        attempt=attempt,
                        seed=0,
                    )
                )
            while line.num_waiting and (completion := line.answer()) is not None:
                keep_completion(ledger, completion)
                num_failed += has_failed(completion)
        ledger.export()
        return num_failed + (line.stopped is not None)


PROBLEM = Problem(
    suite="benchmark",
    level=1,
    number=1,
    name="relu",
    split=Split.TRAIN,
    revision="benchmark",
    device_class=DeviceClass.CPU,
    source="class Model: ...\n",
)


def settings(base_url: str) -> OpenAISettings:
    """Return the settings of a server with short patience, 16 requests at a time."""
    return OpenAISettings(
        kind="openai",
        model="m",
        base_url=base_url,
        api_key_env=None,
        temperature=None,
        top_p=None,
        max_tokens=ANSWER_TOKENS,
        max_completion_tokens=None,
        reasoning_effort=None,
        usd_per_million_prompt_tokens=USD_PER_MILLION["prompt"],
        usd_per_million_cached_prompt_tokens=None,
        usd_per_million_completion_tokens=USD_PER_MILLION["completion"],
        requests_per_minute=None,
        tokens_per_minute=None,
        budget_usd=None,
        concurrency=16,
        timeout_s=1.0,
        max_retries=4,
    )


@contextmanager
def faulty_server(folder: Path, *, seed: int, forgets_keys: bool) -> Generator[str]:
    """Yield the URL of a server in a process of its own."""
    ready = folder / f"url-{seed}"
    command = [sys.executable, "-m", "benchmarks.answers.faulty_server", "--ready", str(ready)]
    command += ["--seed", str(seed), *(["--forgets-keys"] if forgets_keys else [])]
    process = subprocess.Popen(command)
    try:
        while not ready.exists():
            time.sleep(0.02)
        yield ready.read_text()
    finally:
        process.kill()
        process.wait()


def books_of(url: str) -> dict[str, Any]:
    """Return what the server has seen and charged."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the server runs here
    with opener.open(f"{url}/books", timeout=10) as response:
        return json.load(response)


def measure(
    folder: Path, *, num_requests: int, num_kills: int, forgets_keys: bool
) -> dict[str, Any]:
    """Run, kill, and run again; then compare the ledger's bill with the server's books."""
    seed = int(forgets_keys)
    data = folder / f"data-{seed}"
    with faulty_server(folder, seed=seed, forgets_keys=forgets_keys) as url:
        runs, kills = 0, 0
        while runs < MAX_RUNS:
            runs += 1
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "benchmarks.answers.bills",
                    "--child",
                    str(data),
                    url,
                    "--requests",
                    str(num_requests),
                ]
            )
            if kills < num_kills:
                kills += 1
                _kill_when(child, url, num_keys=kills * num_requests // (num_kills + 1))
            elif child.wait() == 0:
                break
        books = books_of(url)
    return {
        "forgets_keys": forgets_keys,
        "num_runs": runs,
        "num_kills": kills,
        **_compared(data, books),
        "server": books,
    }


def _kill_when(child: subprocess.Popen[bytes], url: str, *, num_keys: int) -> None:
    while books_of(url)["num_keys"] < num_keys and child.poll() is None:
        time.sleep(0.01)
    child.kill()
    child.wait()


def _compared(data: Path, books: dict[str, Any]) -> dict[str, Any]:
    charged = (
        books["prompt_tokens"] * USD_PER_MILLION["prompt"]
        + books["completion_tokens"] * USD_PER_MILLION["completion"]
    ) / 1e6
    with Ledger.read(data) as ledger:
        spent = ledger.query("spent", provider="faulty").row(0, named=True)
        count = ledger.sql(
            "select count(*) as num_answers, count(distinct completion_id) as num_distinct, "
            "count(*) filter (starts_with(finish_reason, 'error: ')) as num_failed, "
            "count(distinct decode(answer)) as num_texts from completions"
        ).row(0, named=True)
        outcomes = dict(ledger.sql("select outcome, count(*) from tries group by all").rows())
    return {
        **count,
        "tries": outcomes,
        "charged_usd": round(charged, 9),
        "known_usd": round(spent["cost_usd"], 9),
        "at_most_usd": round(spent["at_most_usd"], 9),
        "is_exact": abs(spent["cost_usd"] - charged) < 1e-9,
        "is_within": spent["cost_usd"] - 1e-9 <= charged <= spent["at_most_usd"] + 1e-9,
    }


def main() -> None:
    """Measure both kinds of server and print a table."""
    parser = Parser(prog="python -m benchmarks.answers.bills", description=__doc__)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs=2, metavar=("DATA", "URL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        try:
            sys.exit(1 if ask_all(Path(given.child[0]), given.child[1], given.requests) else 0)
        except CudaL1Error as error:
            print(error, file=sys.stderr)
            sys.exit(1)
    with tempfile.TemporaryDirectory() as folder:
        found = [
            measure(
                Path(folder),
                num_requests=given.requests,
                num_kills=given.kills,
                forgets_keys=forgets_keys,
            )
            for forgets_keys in (False, True)
        ]
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "bills.json").write_text(json.dumps(found, indent=2) + "\n")
    print(
        f"{'server':<14}{'answers':>8}{'once':>6}{'failed':>7}{'tries':>7}{'charged':>10}"
        f"{'known':>10}{'at most':>10}  bill"
    )
    for each in found:
        says = "exact" if each["is_exact"] else "within" if each["is_within"] else "WRONG"
        print(
            f"{'forgets keys' if each['forgets_keys'] else 'honours keys':<14}"
            f"{each['num_answers']:>8}{each['num_distinct']:>6}{each['num_failed']:>7}"
            f"{sum(each['tries'].values()):>7}{each['charged_usd']:>10.6f}{each['known_usd']:>10.6f}"
            f"{each['at_most_usd']:>10.6f}  {says}"
        )


if __name__ == "__main__":
    main()
