"""Verifies the chain, and a copy of it in a file: finds the first place that is not as written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from clarion.audit.chain import ChainKeys, content_of, is_linked, is_pruned
from clarion.audit.model import ChainState, Entry
from clarion.audit.port import Chain

_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was verified, and the first fault if there is one."""

    first: int = 0
    last: int = 0
    link: str = ""
    waiting: int = 0
    fault: str | None = None


async def verify_chain(chain: Chain, keys: ChainKeys) -> Verified:
    """Verify every entry that is stored, from the oldest on."""
    state = await chain.get_state()
    if not is_pruned(keys, state):
        return Verified(fault=f"the beginning of the chain, entry {state.pruned_sequence}, is not signed")
    last, link = state.pruned_sequence, state.pruned_link
    async for entry in read_chain(chain, state.pruned_sequence):
        if fault := find_fault(keys, entry, last, link):
            return Verified(first=state.pruned_sequence + 1, last=last, link=link, fault=fault)
        last, link = entry.sequence or 0, entry.link or ""
    # The chain may have grown since.
    fault = None if last >= state.sequence else f"{_name_range(last + 1, state.sequence)} missing"
    waiting, forged = await _count_waiting(chain, keys)
    return Verified(
        first=state.pruned_sequence + 1,
        last=last,
        link=link,
        waiting=waiting,
        fault=fault or _compare_end(state, last, link) or forged,
    )


async def read_chain(chain: Chain, after: int) -> AsyncIterator[Entry]:
    """Yield the entries after a number, in their order."""
    while page := await chain.read(after, _PAGE):
        for entry in page:
            yield entry
        after = page[-1].sequence or 0


def find_fault(keys: ChainKeys, entry: Entry, last: int, link: str) -> str | None:
    """Return what is wrong with an entry that must follow the one with this number and link."""
    number = entry.sequence or 0
    if number != last + 1:
        return f"{_name_range(last + 1, number - 1)} missing"
    for signature in (entry.signature, entry.link or ""):
        if not keys.knows(signature):
            return (
                f"entry {number} was signed with the key {signature[:8]}, which is neither in "
                "master.key nor among the keys of the audit log"
            )
    if not keys.verifies(entry.signature, *content_of(entry)):
        return f"entry {number} ({entry.action}) was changed"
    if not is_linked(keys, entry, link):
        return f"entry {number} ({entry.action}) does not follow the entry before it"
    return None


def _compare_end(state: ChainState, last: int, link: str) -> str | None:
    if last == state.sequence and link != state.link:
        return f"the end of the chain, entry {last}, was changed"
    return None


async def _count_waiting(chain: Chain, keys: ChainKeys) -> tuple[int, str | None]:
    """Return how many entries wait to be linked, and whether one of them is not ours."""
    count, last = 0, ""
    while page := await chain.read_waiting(last, _PAGE):
        count += len(page)
        for entry in page:
            if keys.knows(entry.signature) and not keys.verifies(
                entry.signature, *content_of(entry)
            ):
                return count, f"the entry {entry.id} was not written by Clarion"
        last = page[-1].id
    return count, None


def _name_range(first: int, last: int) -> str:
    return f"entry {first} is" if first == last else f"entries {first} to {last} are"
