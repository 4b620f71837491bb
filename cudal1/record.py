"""The base class of everything cudal1 writes down: a frozen, closed record."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """An immutable fact. Unknown fields are refused; docstrings under fields document them."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


def content_id(*parts: str) -> str:
    """Return 16 hexadecimal digits that name the parts' content (SHA-256, truncated to 64 bits)."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()[:16]
