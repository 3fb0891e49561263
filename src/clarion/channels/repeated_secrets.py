"""Removes secrets that a provider repeats in its answer, before the answer is stored or shown."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from clarion.channels.model import Failure, Outcome, Verified

T = TypeVar("T", bound=Outcome | Verified)
_HIDDEN = "…"
# A shorter one is in ordinary texts as well.
_SHORTEST = 6


def conceal(outcome: T, secrets: Iterable[str]) -> T:
    """Return an outcome whose text has none of these secrets."""
    name = "error_message" if isinstance(outcome, Failure) else "response"
    text: str | None = getattr(outcome, name)
    if not text:
        return outcome
    forms = [form for each in secrets if len(each) >= _SHORTEST for form in _forms_of(each)]
    hidden: Any = {name: _hide(text, forms)}
    return msgspec.structs.replace(outcome, **hidden)


def _forms_of(secret: str) -> Iterator[str]:
    """Yield a secret in plain text and as a part of base64, for each possible offset."""
    yield secret
    for shift in range(3):
        text = base64.b64encode(b"x" * shift + secret.encode(errors="replace")).decode()
        # What is next to it changes the characters at both ends.
        yield text[4 if shift else 0 :].rstrip("=")[:-1]


def _hide(text: str, forms: Iterable[str]) -> str:
    for form in forms:
        text = text.replace(form, _HIDDEN)
        # The texts of providers are cut short.
        lengths = range(min(len(form), len(text)), _SHORTEST - 1, -1)
        if cut := next((each for each in lengths if text.endswith(form[:each])), 0):
            text = text[:-cut] + _HIDDEN
    return text
