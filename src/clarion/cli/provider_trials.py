"""For `clarion doctor`: tries the credentials of providers, without sending anything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from clarion.channels.http_clients import HttpClients
from clarion.channels.kind_table import KINDS
from clarion.channels.model import Failure, Misconfigured, Outcome, Provider, Verified
from clarion.channels.port import SenderContext
from clarion.channels.route import verify
from clarion.channels.targets import Targets
from clarion.cli.findings import Finding, State
from clarion.clock import SystemClock
from clarion.settings import Settings

TRIED_LIMIT = 100
_AT_ONCE = 8
_TIMEOUT_S = 10
_SHOWN = 5


class Trial(NamedTuple):
    """A provider, and what came of trying its credentials; None if they cannot be tried."""

    provider: Provider
    outcome: Verified | Outcome | None

    @property
    def state(self) -> State:
        if isinstance(self.outcome, Misconfigured):
            return "fault"
        return "note" if isinstance(self.outcome, Failure) else "ok"


async def try_providers(providers: Sequence[Provider], settings: Settings) -> list[Trial]:
    """Try the first hundred providers, a few at a time."""
    http = HttpClients(Targets(settings.allow_private_targets))
    context = SenderContext(clock=SystemClock(), http=http, public_url=settings.external_url)
    slots = asyncio.Semaphore(_AT_ONCE)

    async def run(provider: Provider) -> Trial:
        kind = KINDS.get(provider.kind)
        quick = replace(provider, timeout_s=min(provider.timeout_s, _TIMEOUT_S))
        async with slots:
            return Trial(provider, await verify(quick, kind, context) if kind else None)

    try:
        return list(await asyncio.gather(*map(run, providers[:TRIED_LIMIT])))
    finally:
        await http.close()


def describe_trials(trials: Sequence[Trial], *, active: int) -> Finding:
    """Return the worst state, how many there are, and what to do: faults first."""
    states = {each.state for each in trials}
    failed = sorted((each for each in trials if each.state != "ok"), key=lambda each: each.state)
    parts = [f"{active:,} active"]
    if verified := sum(isinstance(each.outcome, Verified) for each in trials):
        parts.append(f"{verified} {'accepts its' if verified == 1 else 'accept their'} credentials")
    untried = sorted({each.provider.kind for each in trials if each.outcome is None})
    if untried:
        parts.append(
            f"not tried, since that would send something: {', '.join(untried)} "
            "(POST /v1/providers/{channel}/{name}/test tries one)"
        )
    worst: State = "fault" if "fault" in states else "note" if "note" in states else "ok"
    return Finding(worst, "; ".join(parts), tuple(map(_describe, failed[:_SHOWN])))


def _describe(trial: Trial) -> str:
    provider, outcome = trial
    text = f"{outcome.error_message} [{outcome.error_code}]" if isinstance(outcome, Failure) else ""
    return f"Fix {provider.channel}/{provider.name} of app {provider.app_id}: {text}"
