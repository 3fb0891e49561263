"""What went wrong between Clarion and a provider, in words, with the technical name."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from typing import TypeVar

from clarion.channels.answers import NO_ANSWER, NOT_CONNECTED, AnswerTable
from clarion.channels.model import Failure, Misconfigured, Outcome, Verified
from clarion.system.connection_faults import describe_fault

T = TypeVar("T", bound=Outcome | Verified)
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_CERTIFICATE = "invalid peer certificate: "
# Of the HTTP library: TLS was not spoken, or not agreed on.
_HANDSHAKE = ("received corrupt message", "received fatal alert", "peer is incompatible")
# What is said here begins so, and has nothing that a provider sent.
_OURS = ("The host ", "The name ", "The certificate of ", "The TLS handshake with ")
_TIMED_OUT = frozenset({"operation timed out", "deadline has elapsed"})


def describe_lookup(error: Exception, host: str) -> str:
    """Return why the address of a host was not found."""
    if isinstance(error, socket.gaierror):
        return describe_fault(error, host)
    if isinstance(error, TimeoutError):
        return f"The name {host} was not resolved in time ({type(error).__name__})"
    return f"The name {host} cannot be resolved: {error.__cause__ or error}"


def describe_http(causes: Sequence[str], kind: str, host: str) -> str:
    """Return why a request over HTTP got no answer, by what the library says about it."""
    said = causes[-1] if causes else kind
    if found := _OS_ERROR.search(said):
        return describe_fault(OSError(int(found[1]), ""), host)
    if said in _TIMED_OUT:
        return f"The host {host} did not answer in time ({kind})"
    if said.startswith(_CERTIFICATE):
        return f"The certificate of {host} is not valid ({said.removeprefix(_CERTIFICATE)})"
    if said.startswith(_HANDSHAKE):
        return f"The TLS handshake with {host} failed ({said})"
    return f"The connection to {host} failed ({said})"


def explain_refusal(outcome: T, answers: AnswerTable) -> T | Misconfigured:
    """Say in words why a provider refuses everything, and add its own answer."""
    if not isinstance(outcome, Misconfigured) or outcome.error_message.endswith("."):
        return outcome  # it is a sentence already
    meaning = answers.find_meaning(outcome.error_code)
    if not meaning:
        return outcome
    message = f"{meaning.removesuffix('.')} ({outcome.error_message or outcome.error_code})"
    return Misconfigured(error_code=outcome.error_code, error_message=message)


def name_cause(failure: Failure, answers: AnswerTable) -> str:
    """Return the cause of a failed attempt for the log, without text from the provider."""
    is_about_connection = failure.error_code.endswith((NOT_CONNECTED, NO_ANSWER))
    if is_about_connection and failure.error_message.startswith(_OURS):
        return failure.error_message
    return answers.find_meaning(failure.error_code) or "Attempts fail."
