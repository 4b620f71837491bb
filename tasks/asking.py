"""Where ledger and providers meet: what was answered before is not asked, or paid for, again."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial

from cudal1.billing import Try
from cudal1.candidate import Completion
from cudal1.errors import BudgetError, ProviderDownError, ProviderError
from cudal1.ledger import Ledger
from cudal1.llm.openai_key import api_key
from cudal1.llm.provider import Exchange, Provider, Request, has_failed, make_provider
from cudal1.provider_settings import OpenAISettings, ProviderSettings
from tasks.consent import WithConsent, is_paid, may_spend_usd


class LedgerReceipts:
    """Receipts that are kept in the ledger; a provider's threads may call."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def tried(self, attempt: Try) -> None:
        """Note a try before it leaves, and what became of it."""
        self._ledger.add_try(attempt)

    def arrived(self, completion: Completion, paid: Try | None = None) -> None:
        """Note the raw answer with what it cost; what is in it is found later."""
        self._ledger.add_answer(completion, paid)

    def spent_usd(self, provider: str) -> float:
        """The bill so far, with everything that is in doubt."""
        return float(self._ledger.query("spent", provider=provider).item(0, "at_most_usd"))


class Asking:
    """A provider whose earlier answers are given again; it is opened when something is new.

    One that is down, or out of money, stops: what is known is still given, nothing new is asked.
    """

    def __init__(self, ledger: Ledger, provider: Provider, stack: ExitStack) -> None:
        self._ledger = ledger
        self._provider = provider
        self._stack = stack
        self._known: deque[Completion] = deque()
        self._exchange: Exchange | None = None
        self.num_waiting = 0
        """Requests whose answer was not fetched yet."""
        self.stopped: ProviderError | None = None
        """Why nothing new is asked any more."""

    def ask(self, request: Request) -> bool:
        """Hand over a request; returns at once, unless the provider must be started.

        False: it was not taken, because the provider has stopped and no answer is known.
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

        None: the provider has stopped, and nothing that waited will be answered.

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
    """A provider to ask; leaving it abandons what is in flight."""
    with ExitStack() as stack:
        yield Asking(ledger, provider, stack)


def provider_of(name: str, settings: ProviderSettings) -> Provider:
    """The provider of a section of params.yaml, ready to be asked; who charges, with consent only.

    Raises:
        ConfigError: what the run may spend is no amount.
        ProviderError: its key, its recordings, its weights or its environment are missing.
    """
    provider = described_provider(name, settings)
    if not isinstance(settings, OpenAISettings):
        return provider
    api_key(name, settings)  # said now, not when the first answer is wanted
    if not is_paid(settings):
        return provider
    may_spend_usd()  # as well
    return WithConsent(provider, settings, partial(described_provider, name))


def described_provider(name: str, settings: ProviderSettings) -> Provider:
    """The same for who only wants to know what it would be asked: no key is needed.

    Raises:
        ProviderError: its recordings, its weights or its environment are missing.
    """
    from cudal1.train.policy import Sampler

    return make_provider(name, settings, Sampler)
