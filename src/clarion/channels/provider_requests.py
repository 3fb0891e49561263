"""One HTTP request to a provider whose URL an app can set: its answer, or the outcome without one.

Nothing that a provider answers is stored as it is: texts are cut, and control characters removed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from urllib.parse import urlsplit

from clarion.channels.answers import NETWORK, NO_ANSWER, NOT_CONNECTED, Action, Answer, AnswerTable
from clarion.channels.http_clients import (
    HttpAnswer,
    HttpClients,
    NoAnswer,
    NotConnected,
    ProviderRequest,
)
from clarion.channels.model import Outcome
from clarion.channels.networks import EVERY_NETWORK
from clarion.channels.targets import TargetRefused, check_url
from clarion.errors import FieldFault

TEXT_LIMIT = 300
_NOT_SHOWN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})

# For every provider whose URL an app can set.
HTTP_NETWORK = (
    *NETWORK,
    Answer(TargetRefused.code, Action.RETRY, "The URL leads to a private address; not called."),
)


async def post(
    http: HttpClients, request: ProviderRequest, answers: AnswerTable, prefix: str = ""
) -> HttpAnswer | Outcome:
    """Send a request; without an answer, return the outcome for the cause.

    `prefix` marks a request that only prepares the message: `token no_answer`.
    """
    try:
        return await http.post(request)
    except NotConnected as error:
        return answers.judge([prefix + NOT_CONNECTED], clean_text(str(error)))
    except NoAnswer as error:
        return answers.judge([prefix + NO_ANSWER], clean_text(str(error)))
    except TargetRefused as error:
        return answers.judge([error.code], error.detail)


def clean_text(text: str, *hidden: str) -> str:
    """Return a provider's text for storing: shortened, and without hidden parts."""
    for each in filter(None, hidden):
        text = text.replace(each, "…")
    if len(text) <= TEXT_LIMIT and text.isprintable():
        return text.strip()
    start = text[: 2 * TEXT_LIMIT]
    shown = (" " if unicodedata.category(c) in _NOT_SHOWN else c for c in start)
    return " ".join("".join(shown).split())[:TEXT_LIMIT]


def find_url_faults(field: str, url: str, *, has_path: bool = False) -> Iterator[FieldFault]:
    """Yield a fault unless a URL can be called with credentials and has only permitted parts.

    Only the guard of targets knows the allowed private networks: see `Kind.list_urls`.
    """
    try:
        check_url(url, EVERY_NETWORK)
    except ValueError as error:
        yield FieldFault(field, str(error))
        return
    parts = urlsplit(url)
    beyond = (parts.query, parts.fragment, "" if has_path else parts.path)
    if parts.scheme != "https" or any(beyond):
        example = "https://host/path" if has_path else "https://host or https://host:port"
        yield FieldFault(field, f"must be a URL like {example}")
