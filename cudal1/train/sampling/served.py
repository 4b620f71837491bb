"""Take answers from a vLLM server, group by group as they end.

TRL's first process asks for the whole batch in one request and gets nothing until its longest
answer has ended. Here each process asks for its own groups, each in a request of its own and all at
once. The server batches sequences, not requests, so its work is the same. A group that has ended
can be built and judged while the server still samples the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

OnEnd = Callable[[Sequence[int], list[list[int]], list[list[float]]], None]


class Served:
    """One process's connection to the server.

    Args:
        generation: TRL's `VLLMGeneration` in mode `server`; says where it is and how to sample.
    """

    def __init__(self, generation: Any) -> None:
        from trl.generation.vllm_client import VLLMClient

        self._settings = generation
        self._client = VLLMClient(
            base_url=generation.server_base_url, connection_timeout=generation.server_timeout
        )

    def sample(self, prompts: Sequence[list[int]], group_size: int, on_end: OnEnd) -> None:
        """Have every prompt answered.

        Args:
            prompts: tokens, in groups of `group_size` equal ones.
            group_size: answers to each different prompt.
            on_end: takes each group, in this thread: places of its prompts, the answers' tokens,
                and the logarithms of the probabilities that these were drawn with.
        """
        groups = [range(at, at + group_size) for at in range(0, len(prompts), group_size)]
        with ThreadPoolExecutor(len(groups)) as threads:
            asked = {
                threads.submit(self._ask, prompts[group[0]], group_size): group for group in groups
            }
            for answered in as_completed(asked):
                on_end(asked[answered], *answered.result())

    def _ask(self, prompt: list[int], count: int) -> tuple[list[list[int]], list[list[float]]]:
        asked = self._settings
        made = self._client.generate(
            prompts=[prompt],
            n=count,
            repetition_penalty=asked.repetition_penalty,
            temperature=asked.temperature,
            top_p=asked.top_p,
            top_k=asked.top_k,
            min_p=asked.min_p or 0.0,
            max_tokens=asked.max_completion_length,
            logprobs=asked.logprobs,
            generation_kwargs=asked.generation_kwargs,
        )
        drawn: Any = made["logprobs"]
        return made["completion_ids"], [[best[0] for best in tokens] for tokens in drawn]
