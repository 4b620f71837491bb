"""The key of an endpoint: read from the environment, and kept out of everything that is stored.

This is the package's only use of secrets.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from cudal1.candidate import Completion
from cudal1.errors import ProviderError
from cudal1.settings.provider_settings import OpenAISettings

_NONE = "none"
"""The key sent where there is none: the client insists on one."""
_MASK = "[key]"


@dataclass(frozen=True)
class Key:
    """A secret that no representation shows."""

    value: str = field(repr=False)

    def masked_text(self, text: str) -> str:
        """Return the text without the key, which a server may have sent back."""
        return text if self.value == _NONE else text.replace(self.value, _MASK)

    def masked(self, completion: Completion) -> Completion:
        """Return the completion with the key masked in all of its texts."""
        changes = {
            name: self.masked_text(text)
            for name in ("text", "finish_reason", "reasoning", "response")
            if (text := getattr(completion, name)) is not None
        }
        return completion.model_copy(update=changes)


def api_key(name: str, settings: OpenAISettings) -> Key:
    """Return the key that the environment holds for a provider.

    Raises:
        ProviderError: the key's variable is not set, or holds characters that no header can carry.
    """
    if settings.api_key_env is None:
        return Key(_NONE)
    key = os.environ.get(settings.api_key_env, "").strip()
    if not key:
        raise ProviderError(
            f"provider {name}: environment variable {settings.api_key_env} is not set; "
            "export the key, or remove the provider from params.yaml"
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ProviderError(
            f"provider {name}: what {settings.api_key_env} holds is no key: it has blanks, line "
            "ends or characters that are not ASCII; export it again"
        )
    return Key(key)
