"""Modules of many kinds, as programs have them, for captures."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

SCALE = math.sqrt(2.0)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE


class Plain(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight)


@dataclass
class Settings:
    width: int
    act: type[nn.Module] = nn.ReLU
    dtype: torch.dtype = torch.float32


class Configured(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.linear = nn.Linear(settings.width, settings.width, dtype=settings.dtype)
        self.act = settings.act()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.linear(x))


class Scaled(nn.Module):
    def __init__(self, settings) -> None:  # no annotation leads to the settings' class
        super().__init__()
        self.scale = nn.Parameter(torch.rand(settings.width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class Base(nn.Module):
    def finish(self, x: torch.Tensor) -> torch.Tensor:
        return scaled(x)


class ConvBlock(Base):
    """A block like those of image models: running statistics, dropout, an optional input."""

    def __init__(self, inside: int, outside: int, *, act: type[nn.Module] = nn.ReLU) -> None:
        super(ConvBlock, self).__init__()  # noqa: UP008 -- as older code has it
        self.conv = nn.Conv2d(inside, outside, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outside)
        self.act = act()
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, skip: torch.Tensor | None = None) -> torch.Tensor:
        y = self.drop(self.act(self.norm(self.conv(x))))
        return self.finish(y if skip is None else y + skip)


class Buffered(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.linspace(0, 1, width))
        self.register_buffer("hidden", torch.linspace(1, 2, width), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.get_buffer("table") + self.get_buffer("hidden")


class Nested(nn.Module):
    def forward(
        self,
        pair: tuple[torch.Tensor, list[torch.Tensor]],
        options: dict[str, torch.Tensor],
        *,
        factor: float = 1.0,
    ) -> dict[str, object]:
        total = pair[0] + pair[1][0] * options["gate"] * factor
        return {"total": total, "parts": (pair[0] * 2, None)}


class Embedded(nn.Module):
    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(count, width)

    def forward(self, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return self.table(ids) + self.table(places)


class Masked(nn.Module):
    def forward(self, scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (scores + mask).softmax(-1)


class SelfAttention(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v)


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


class Indexed(nn.Module):
    """Takes two inputs that only fit together."""

    def forward(self, table: torch.Tensor, ids: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
        if int(ids.sum()) != int(size):
            raise ValueError("the sizes do not fit")
        return table[ids]


class Textual(nn.Module):
    def forward(self, x: torch.Tensor, other: object) -> torch.Tensor:
        return x if other is None else -x


class Forgetful(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = Plain(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)
