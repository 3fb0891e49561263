"""Access tokens of a Google service account: a signed JWT is exchanged for one, which is cached."""

from __future__ import annotations

import asyncio
import re
from email.utils import parsedate_to_datetime
from typing import Annotated, NamedTuple
from urllib.parse import urlencode

import jwt
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from clarion.channels.answers import NO_ANSWER, NOT_CONNECTED, Action, Answer, AnswerTable
from clarion.channels.http_clients import HttpAnswer, HttpClients, ProviderRequest
from clarion.channels.model import Outcome
from clarion.channels.provider_requests import clean_text, post
from clarion.clock import Clock, to_milliseconds

DEFAULT_TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105
SCOPE = "https://www.googleapis.com/auth/firebase.messaging"
ASSERTION_LIFE_S = 3600
# How long before its end a token is renewed; one with a short life is renewed after half of it.
MARGIN_S = 300
# Google refuses a token that was signed at another time than its own.
CLOCK_TOLERANCE_MS = 300_000
# Google makes keys of 2,048 bits; signing with a much larger one would block the event loop.
KEY_BITS = range(2048, 4097)
_PEM_LIMIT = 4_000  # of 4,096 bits
_TOKEN = re.compile(r"[\x21-\x7e]{1,8192}")
_CODE = re.compile(r"[a-z_]{1,64}")
_PREFIX = "token "

TOKEN_ANSWERS = (
    Answer(_PREFIX + NOT_CONNECTED, Action.RETRY, "`token_uri` cannot be reached."),
    Answer(_PREFIX + NO_ANSWER, Action.RETRY, "No access token came; the message was not sent."),
    Answer("token clock", Action.RETRY, "The clock of this machine is wrong."),
    Answer("token malformed", Action.RETRY, "The answer has no access token."),
    Answer("token 429", Action.RETRY, "Too many requests for access tokens."),
    Answer("token 4xx", Action.DISABLE, "Google refuses the service account."),
    Answer("token 5xx", Action.RETRY, "Google cannot issue access tokens now."),
)


class ServiceAccount(msgspec.Struct, frozen=True):
    """The needed parts of a service account's JSON file."""

    client_email: Annotated[str, msgspec.Meta(min_length=3, max_length=320)]
    private_key: Annotated[str, msgspec.Meta(max_length=_PEM_LIMIT)]
    token_uri: Annotated[str, msgspec.Meta(max_length=2048)] = DEFAULT_TOKEN_URI
    private_key_id: Annotated[str, msgspec.Meta(max_length=256)] | None = None

    def __repr__(self) -> str:
        return "ServiceAccount(***)"


class AccessToken(NamedTuple):
    """A token, and when to renew it by the monotonic clock."""

    text: str
    renew_at: int


class _Grant(msgspec.Struct):
    access_token: str = ""
    expires_in: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 3600


class _Refusal(msgspec.Struct):
    error: str = ""
    error_description: str = ""


class AccessTokens:
    """Gives all messages one token. It is exchanged once, however many wait for it."""

    def __init__(
        self,
        account: ServiceAccount,
        *,
        http: HttpClients,
        clock: Clock,
        answers: AnswerTable,
        timeout_s: float,
        ca_path: str | None,
    ) -> None:
        self._account = account
        self._key = load_rsa_key(account.private_key)
        self._http = http
        self._clock = clock
        self._answers = answers
        self._timeout_s = timeout_s
        self._ca_path = ca_path
        self._token: AccessToken | None = None
        self._exchange: asyncio.Task[AccessToken | Outcome] | None = None

    async def get(self, refused: AccessToken | None = None) -> AccessToken | Outcome:
        """Return a token other than the refused one, or the outcome if there is none."""
        token = self._token
        if token and token != refused and self._clock.monotonic() < token.renew_at:
            return token
        if self._exchange is None or self._exchange.done():
            self._exchange = asyncio.create_task(self._renew())
        exchange = self._exchange
        # The caller that started it may be cancelled: the others still wait for it.
        await asyncio.wait([exchange])
        if exchange.cancelled():
            return self._answers.judge([_PREFIX + NOT_CONNECTED], "the provider is being closed")
        return exchange.result()

    async def close(self) -> None:
        """Stop an exchange that is in progress."""
        if self._exchange is not None:
            self._exchange.cancel()
            await asyncio.wait([self._exchange])

    async def _renew(self) -> AccessToken | Outcome:
        body = urlencode(
            {
                "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
                "assertion": self._sign(),
            }
        )
        request = ProviderRequest(
            url=self._account.token_uri,
            headers={"content-type": "application/x-www-form-urlencoded"},
            body=body.encode(),
            timeout_s=self._timeout_s,
            ca_path=self._ca_path,
        )
        answer = await post(self._http, request, self._answers, _PREFIX)
        if not isinstance(answer, HttpAnswer):
            return answer
        if answer.status != 200:  # noqa: PLR2004
            return self._judge(answer)
        return self._accept(answer)

    def _sign(self) -> str:
        now_s = self._clock.now() // 1000
        claims = {
            "iss": self._account.client_email,
            "scope": SCOPE,
            "aud": self._account.token_uri,
            "iat": now_s,
            "exp": now_s + ASSERTION_LIFE_S,
        }
        key_id = self._account.private_key_id
        return jwt.encode(claims, self._key, "RS256", {"kid": key_id} if key_id else None)

    def _accept(self, answer: HttpAnswer) -> AccessToken | Outcome:
        grant = answer.read_json(_Grant)
        if not _TOKEN.fullmatch(grant.access_token):
            return self._answers.judge(["token malformed"], "the answer has no access token")
        life_s = grant.expires_in - min(MARGIN_S, grant.expires_in // 2)
        self._token = AccessToken(grant.access_token, self._clock.monotonic() + life_s * 1000)
        return self._token

    def _judge(self, answer: HttpAnswer) -> Outcome:
        now = self._clock.now()
        status, kind = answer.codes
        codes = [_PREFIX + status, _PREFIX + kind]
        refusal = _read_refusal(answer)
        if refusal.error:
            codes.insert(0, _PREFIX + refusal.error)
        if answer.status < 500 and _is_clock_wrong(answer, now):  # noqa: PLR2004
            codes = ["token clock"]
        return self._answers.judge(
            codes,
            clean_text(f"{refusal.error} {refusal.error_description}"),
            retry_after=answer.read_retry_after(now),
        )


def load_rsa_key(text: str) -> rsa.RSAPrivateKey:
    """Return a key for RS256; `ValueError` if it is not one, or its parts do not match.

    The library would test that the primes are prime, for up to half a second on the event loop.
    With a wrong one, no signature is accepted.
    """
    try:
        key = load_pem_private_key(text.encode(), None, unsafe_skip_rsa_key_validation=True)
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("the key cannot be read") from error
    if not isinstance(key, rsa.RSAPrivateKey) or key.key_size not in KEY_BITS:
        raise ValueError("the key is not one for RS256")
    if not _is_consistent(key.private_numbers()):
        raise ValueError("the parts of the key do not match")
    return key


def _is_consistent(numbers: rsa.RSAPrivateNumbers) -> bool:
    """Check what the arithmetic of signing relies on."""
    p, q, d = numbers.p, numbers.q, numbers.d
    n, e = numbers.public_numbers.n, numbers.public_numbers.e
    return (
        p % 2 == q % 2 == e % 2 == 1
        and min(p, q, e) > 2  # noqa: PLR2004
        and p * q == n
        and e < 1 << 32
        and (numbers.dmp1, numbers.dmq1) == (d % (p - 1), d % (q - 1))
        and d * e % (p - 1) == d * e % (q - 1) == 1
        and numbers.iqmp * q % p == 1
    )


def _read_refusal(answer: HttpAnswer) -> _Refusal:
    refusal = answer.read_json(_Refusal)
    return refusal if _CODE.fullmatch(refusal.error) else _Refusal()


def _is_clock_wrong(answer: HttpAnswer, now: int) -> bool:
    """Whether Google's clock shows another time than ours, by the head of its answer."""
    try:
        theirs = to_milliseconds(parsedate_to_datetime(answer.header("date") or ""))
    except (TypeError, ValueError):
        return False
    return abs(theirs - now) > CLOCK_TOLERANCE_MS
