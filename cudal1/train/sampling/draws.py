"""Draw the next tokens of a batch of answers from a policy's scores.

A draw is a part of a decoding step that may be recorded (`rollouts`): it works on tensors that stay
in place, and the host asks the device nothing.

Shapes: B answers, T tokens of an answer, V tokens of the vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch


class Draw(Protocol):
    """A way of drawing, as a decoder uses it."""

    def reserve(self, batch: int, num_tokens: int, device: Any) -> None:
        """Make room for B answers of T tokens, before a step is recorded."""
        ...

    def begin(self) -> None:
        """Get ready for the first tokens of new answers."""
        ...

    def __call__(self, scores_BV: torch.Tensor, count_1: torch.Tensor) -> torch.Tensor:
        """Return the tokens (B) behind answers that have `count_1` tokens."""
        ...


class FreshDraw:
    """Draws with torch's generator of the device: tokens as `generate` draws them.

    The warpers are transformers' own, in its order.
    """

    def __init__(self, *, temperature: float, top_p: float) -> None:
        """Draw at a temperature above 0."""
        self._warpers = _warpers(temperature, top_p)

    def reserve(self, batch: int, num_tokens: int, device: Any) -> None:
        """Do nothing: nothing is kept."""

    def begin(self) -> None:
        """Do nothing: the generator goes on."""

    def __call__(self, scores_BV: torch.Tensor, count_1: torch.Tensor) -> torch.Tensor:
        """Return one token of each row, by its probability."""
        import torch

        probs_BV = self._warpers(None, scores_BV.float()).softmax(-1)
        # what multinomial does for one draw, but without its check of probabilities on the host
        return (probs_BV / torch.empty_like(probs_BV).exponential_()).argmax(-1)


class GivenDraw:
    """Draws by numbers that are given for each answer, and keeps the tokens' probabilities.

    So an answer depends on its own numbers and, by rounding, on its batch.
    """

    def __init__(self, *, temperature: float, top_p: float) -> None:
        """Draw at a temperature; 0 takes the likeliest token."""
        self._temperature = temperature
        self._top_p = top_p

    def give(self, uniforms_TB: torch.Tensor) -> None:
        """Take numbers in [0, 1) for the answers that come next; there may be fewer than rows."""
        self._given_TB = uniforms_TB

    def reserve(self, batch: int, num_tokens: int, device: Any) -> None:
        """Make room for the numbers and the probabilities."""
        import torch

        self._uniforms_TB = torch.zeros((num_tokens, batch), dtype=torch.float64, device=device)
        self._logprobs_TB = torch.zeros((num_tokens, batch), device=device)

    def begin(self) -> None:
        """Take over what was given."""
        self._uniforms_TB[:, : self._given_TB.shape[1]].copy_(self._given_TB)

    def __call__(self, scores_BV: torch.Tensor, count_1: torch.Tensor) -> torch.Tensor:
        """Return the tokens that the numbers draw."""
        scores_BV = scores_BV.float()
        uniforms_B = self._uniforms_TB.index_select(0, count_1).squeeze(0)
        tokens_B = drawn(scores_BV, uniforms_B, temperature=self._temperature, top_p=self._top_p)
        logprobs_B = scores_BV.log_softmax(-1).gather(1, tokens_B.unsqueeze(1)).squeeze(1)
        self._logprobs_TB.index_copy_(0, count_1, logprobs_B.unsqueeze(0))
        return tokens_B

    def logprobs(self) -> list[list[float]]:
        """Return natural log-probabilities (B, T) of the answers; garbage behind an end token."""
        return self._logprobs_TB.T[: self._given_TB.shape[1]].tolist()


class DrawingProcessor:
    """A logits processor of transformers that draws by given numbers.

    It leaves the drawn token alone possible, so that greedy generation takes it. The sampling of
    transformers has one random stream for the whole batch.
    """

    def __init__(self, draw: GivenDraw) -> None:
        """Draw with `draw`, from the first token on."""
        self._draw = draw
        self._count = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores (B, V) in which only the drawn tokens are finite."""
        count_1 = input_ids.new_full((1,), self._count)
        self._count += 1
        tokens_B1 = self._draw(scores, count_1).unsqueeze(1)
        return scores.new_full(scores.shape, float("-inf")).scatter(1, tokens_B1, 0.0)


def drawn(
    scores_BV: torch.Tensor, uniforms_B: torch.Tensor, *, temperature: float, top_p: float
) -> torch.Tensor:
    """Return the token (B) that each number in [0, 1) draws from a row of float32 scores."""
    import torch

    if temperature == 0:
        return scores_BV.argmax(-1)
    # the best score becomes 0: a tiny temperature must not overflow
    scaled_BV = (scores_BV - scores_BV.amax(-1, keepdim=True)) / temperature
    probs_BV = scaled_BV.softmax(-1)
    if top_p < 1:
        ranked_BV, ranks_BV = probs_BV.sort(-1, descending=True)
        ranked_BV = ranked_BV.masked_fill(ranked_BV.cumsum(-1) - ranked_BV >= top_p, 0)
        probs_BV = torch.zeros_like(probs_BV).scatter(1, ranks_BV, ranked_BV)
    # in double: a vocabulary is long, and its sum must not lose its small members
    sums_BV = probs_BV.double().cumsum(-1)
    targets_B1 = (uniforms_B * sums_BV[:, -1]).unsqueeze(1)
    tokens_B1 = torch.searchsorted(sums_BV, targets_B1, right=True)
    return tokens_B1.squeeze(1).clamp(max=probs_BV.shape[1] - 1)


def _warpers(temperature: float, top_p: float) -> Any:
    """Return the changes that `generate` makes to scores, in its order."""
    from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

    warpers = LogitsProcessorList()
    if temperature != 1.0:
        warpers.append(TemperatureLogitsWarper(temperature))
    if top_p < 1.0:
        warpers.append(TopPLogitsWarper(top_p))
    return warpers
