"""Verifies the chain, and a copy of it in a file: finds the first place that is not as written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from clarion.audit.chain import ChainKeys, content_of, is_linked, is_pruned
from clarion.audit.log_file import LogFile, read_entries
from clarion.audit.model import ChainState, ChainVerification, Entry

if TYPE_CHECKING:
    from clarion.audit.sql import Chain

_PAGE = 1000
# What a server verifies in one go on its event loop: about 5 ms.
_SHORT_PAGE = 100


async def verify_chain(chain: Chain, keys: ChainKeys) -> ChainVerification:
    """Verify every entry that is stored, from the oldest on."""
    state = await chain.get_state()
    verified = await _verify_after(chain, keys, state, state.pruned_sequence, _PAGE)
    if verified.fault is not None:
        return verified
    waiting, forged = await _count_waiting(chain, keys)
    return replace(verified, waiting=waiting, fault=forged)


async def verify_newest(chain: Chain, keys: ChainKeys, count: int) -> ChainVerification:
    """Verify the last entries of the chain: within a server, which has no time for all."""
    state = await chain.get_state()
    after = max(state.pruned_sequence, state.sequence - count)
    return await _verify_after(chain, keys, state, after, _SHORT_PAGE)


async def _verify_after(
    chain: Chain, keys: ChainKeys, state: ChainState, after: int, size: int
) -> ChainVerification:
    """Verify the entries after a number, and that the chain ends as its state says."""
    if after == state.pruned_sequence and not is_pruned(keys, state):
        return ChainVerification(fault=f"the beginning of the chain, entry {after}, is not signed")
    last, link = after, await _find_link(chain, state, after)
    async for entry in read_chain(chain, after, size):
        if fault := find_fault(keys, entry, last, link):
            return ChainVerification(first=after + 1, last=last, link=link, fault=fault)
        last, link = entry.sequence or 0, entry.link or ""
    # The chain may have grown since.
    missing = f"{_name_range(last + 1, state.sequence)} missing"
    fault = None if last >= state.sequence else missing
    return ChainVerification(
        first=after + 1, last=last, link=link, fault=fault or _compare_end(state, last, link)
    )


async def _find_link(chain: Chain, state: ChainState, sequence: int) -> str:
    """Return the link of an entry; empty if it is missing, which no entry can follow."""
    if sequence == state.pruned_sequence:
        return state.pruned_link
    found = await chain.read(sequence - 1, 1)
    is_found = bool(found) and found[0].sequence == sequence
    return (found[0].link or "") if is_found else ""


async def read_chain(chain: Chain, after: int, size: int = _PAGE) -> AsyncIterator[Entry]:
    """Yield the entries after a number, in their order."""
    while page := await chain.read(after, size):
        for entry in page:
            yield entry
        after = page[-1].sequence or 0


def find_fault(keys: ChainKeys, entry: Entry, last: int, link: str) -> str | None:
    """Return what is wrong with an entry that must follow this number and link."""
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


async def verify_anchor(chain: Chain, sequence: int, link: str) -> str | None:
    """Return whether the entry of an anchor has changed since the anchor was noted."""
    state = await chain.get_state()
    if sequence <= state.pruned_sequence:
        is_same = sequence < state.pruned_sequence or link == state.pruned_link
    else:
        found = await chain.read(sequence - 1, 1)
        is_same = bool(found) and (found[0].sequence, found[0].link) == (sequence, link)
    return None if is_same else f"entry {sequence} is not the one of the anchor"


async def verify_file(file: LogFile, chain: Chain, keys: ChainKeys) -> str | None:
    """Return the first line of the file, or of a renamed one, that is not as in the chain."""
    state = await chain.get_state()
    for path in reversed(file.list_files()):
        try:
            fault = await _verify_lines(path, chain, keys, state)
        except OSError as error:
            fault = f"{path} cannot be read: {error.strerror}"
        if fault is not None:
            return fault
    return None


async def _verify_lines(path: Path, chain: Chain, keys: ChainKeys, state: ChainState) -> str | None:
    before: Entry | None = None
    stored = _Cursor(chain)
    for number, entry in read_entries(path):
        if entry is None or entry.sequence is None:
            continue  # cut off by a crash; if it was removed, its number is missing
        fault = _find_line_fault(keys, entry, before, state)
        if fault is None and entry.sequence > state.pruned_sequence:
            found = await stored.find(entry.sequence)
            fault = None if found == entry else f"is not as in the store (entry {entry.sequence})"
        if fault is not None:
            return f"line {number} of {path} {fault}"
        before = entry
    return None


def _find_line_fault(
    keys: ChainKeys, entry: Entry, before: Entry | None, state: ChainState
) -> str | None:
    number = entry.sequence or 0
    if number > state.sequence:
        return f"has entry {number}, but the store ends with {state.sequence}"
    if before is not None and before.sequence == number:
        return None if before == entry else f"is not as the line before it (entry {number})"
    if before is None:
        signed = keys.verifies(entry.signature, *content_of(entry))
        return None if signed else f"was changed (entry {number})"
    return find_fault(keys, entry, before.sequence or 0, before.link or "")


class _Cursor:
    """Finds the entries of the chain by their numbers, which only grow, a page at a time."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._page: dict[int, Entry] = {}

    async def find(self, sequence: int) -> Entry | None:
        if sequence not in self._page:
            page = await self._chain.read(sequence - 1, _PAGE)
            self._page = {each.sequence or 0: each for each in page}
        return self._page.get(sequence)
