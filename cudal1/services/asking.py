"""Connect ledger and providers: an answered question is not asked, or paid for, again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial

from cudal1.billing import Try
from cudal1.candidate import Completion
from cudal1.errors import BudgetError, ProviderDownError, ProviderError
from cudal1.ledger import Ledger
from cudal1.llm.made import make_provider
from cudal1.llm.openai.openai_key import api_key
from cudal1.llm.provider import Exchange, Provider, Request, has_failed
from cudal1.services.consent import WithConsent, is_paid, may_spend_usd
from cudal1.settings.provider_settings import OpenAISettings, ProviderSettings


class LedgerReceipts:
    """Receipts that are kept in the ledger; a provider's threads may call them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def tried(self, attempt: Try) -> None:
        """Note a try before it is sent, and later its outcome."""
        self._ledger.add_try(attempt)

    def arrived(self, completion: Completion, paid: Try | None = None) -> None:
        """Note the raw answer with what it cost; its content is read later."""
        self._ledger.add_answer(completion, paid)

    def spent_usd(self, provider: str) -> float:
        """Return the bill so far, including all doubtful amounts."""
        return float(self._ledger.query("spent", provider=provider).item(0, "at_most_usd"))


class Asking:
    """A provider that gives known answers again, and is opened only for a new question.

    A provider that is down, or out of money, stops: known answers are still given, but no new
    question is asked.
    """

    def __init__(self, ledger: Ledger, provider: Provider, stack: ExitStack) -> None:
        self._ledger = ledger
        self._provider = provider
        self._stack = stack
        self._known: deque[Completion] = deque()
        self._exchange: Exchange | None = None
        self.num_waiting = 0
        """Requests with an answer that was not fetched yet."""
        self.stopped: ProviderError | None = None
        """The error after which no new question is asked."""

    def ask(self, request: Request) -> bool:
        """Hand over a request; return at once, unless the provider must be started.

        Return False if the request was not taken, because the provider has stopped and no answer is
        known.
        """
        known = self._ledger.completion(request.id)
        if known is not None and not has_failed(known):
            self._known.append(known)
        elif self.stopped is not None:
            return False
        else:
            if self._exchange is None:
                opened = self._provider.open(LedgerReceipts(self._ledger))
                self._exchange = self._stack.enter_context(opened)
            self._exchange.ask(request)
        self.num_waiting += 1
        return True

    def answer(self) -> Completion | None:
        """Wait for the next completion, in any order.

        Return None if the provider has stopped, and no waiting request will be answered.

        Raises:
            ProviderError: the provider is misconfigured or refuses us.
        """
        if self._known:
            self.num_waiting -= 1
            return self._known.popleft()
        assert self._exchange is not None, "answer without ask"
        try:
            completion = self._exchange.answer()
        except (ProviderDownError, BudgetError) as error:
            self.stopped = error
            self.num_waiting = 0
            return None
        self.num_waiting -= 1
        return completion


@contextmanager
def asking(ledger: Ledger, provider: Provider) -> Generator[Asking]:
    """Yield a provider to ask; leaving the block abandons requests in flight."""
    with ExitStack() as stack:
        yield Asking(ledger, provider, stack)


def provider_of(
    name: str, settings: ProviderSettings, *, allowed_usd: Callable[[], float] = may_spend_usd
) -> Provider:
    """Return the provider of a section of params.yaml; one that charges asks with consent only.

    Args:
        name: the section's key.
        settings: the section.
        allowed_usd: returns what this run may spend at the provider, in USD.

    Raises:
        ConfigError: the variable of `may_spend_usd` holds no amount.
        ProviderError: its key, its recordings, its weights or its environment are missing.
    """
    provider = described_provider(name, settings)
    if not isinstance(settings, OpenAISettings):
        return provider
    api_key(name, settings)  # raises here, not when the first answer is wanted
    if not is_paid(settings):
        return provider
    allowed_usd()  # raises here, too
    return WithConsent(provider, settings, partial(described_provider, name), allowed_usd)


def described_provider(name: str, settings: ProviderSettings) -> Provider:
    """Return the provider only to describe what it would be asked; no key is needed.

    Raises:
        ProviderError: its recordings, its weights or its environment are missing.
    """
    from cudal1.train.policy import Sampler

    return make_provider(name, settings, Sampler)
