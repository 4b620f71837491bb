"""Make the provider that a section of params.yaml describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudal1.llm.provider import Provider
from cudal1.settings.provider_settings import (
    LocalSettings,
    OpenAISettings,
    ProviderSettings,
    ReplaySettings,
    RewriterSettings,
    VllmSettings,
)

if TYPE_CHECKING:
    from cudal1.llm.local import LoadPolicy


def make_provider(name: str, settings: ProviderSettings, load_policy: LoadPolicy) -> Provider:
    """Return the provider that a section of params.yaml describes.

    Args:
        name: the section's key in the file.
        settings: the section.
        load_policy: loads or fingerprints a policy's folder; it belongs to another world.

    Raises:
        ProviderError: the provider's recordings, weights or environment are missing.
    """
    match settings:
        case RewriterSettings():
            from cudal1.llm.rewriter_provider import RewriterProvider

            return RewriterProvider(name, settings)
        case ReplaySettings():
            from cudal1.llm.replay import ReplayProvider

            return ReplayProvider(name, settings)
        case OpenAISettings():
            from cudal1.llm.openai.openai_api import OpenAIProvider

            return OpenAIProvider(name, settings)
        case LocalSettings():
            from cudal1.llm.local import LocalProvider

            return LocalProvider(name, settings, load_policy)
        case VllmSettings():
            from cudal1.llm.vllm import VllmProvider

            return VllmProvider(name, settings, load_policy.fingerprint)
