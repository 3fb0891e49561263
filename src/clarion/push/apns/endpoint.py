"""The APNs endpoint: paths, methods and responses as the clients of APNs expect them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import msgspec

from clarion.clock import Clock
from clarion.errors import BodyTooLarge, ClarionError
from clarion.http.asgi import Request, Response
from clarion.push.apns.channels import BroadcastChannels, read_request_id
from clarion.push.apns.intake import PushIntake
from clarion.push.apns.provider_tokens import Provider, ProviderTokens
from clarion.push.apns.reasons import Reason, Rejected
from clarion.push.apns.request import LARGE_PAYLOAD_LIMIT_BYTES, check_repeated
from clarion.telemetry.logs import get_logger
from clarion.telemetry.outages import log_failure

# Everything below these prefixes is answered in the format of APNs, unknown paths too.
DEVICE_PREFIX = "/3/"
BROADCAST_PREFIX = "/4/"
CHANNELS_PREFIX = "/1/"
_JSON = (b"content-type", b"application/json")
_ECHOED = re.compile(r"[!-~]([ -~]{0,126}[!-~])?")
_FIRST_ERROR = 400


class ApnsEndpoint:
    """Answers providers. Every response has an id; an error has a JSON object as its body."""

    def __init__(
        self,
        *,
        tokens: ProviderTokens,
        intake: PushIntake,
        channels: BroadcastChannels,
        clock: Clock,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._tokens = tokens
        self._intake = intake
        self._channels = channels
        self._clock = clock
        self._is_stopping = is_stopping
        self.prefixes = {
            DEVICE_PREFIX: partial(self._guard, self._push, b"apns-id"),
            BROADCAST_PREFIX: partial(self._guard, self._broadcast, b"apns-request-id"),
            CHANNELS_PREFIX: partial(self._guard, self._manage, b"apns-request-id"),
        }

    async def _push(self, request: Request, headers: Mapping[bytes, bytes]) -> Response:
        """`POST /3/device/{token}`."""
        token = _token_of(request)
        provider = self._find_known(request) or await self._identify(request)
        try:
            body = await request.body(LARGE_PAYLOAD_LIMIT_BYTES)
        except BodyTooLarge as error:
            raise Rejected(Reason.PAYLOAD_TOO_LARGE) from error
        message_id = await self._intake.push(provider, headers, token, body)
        return Response(200, b"", ((b"apns-id", message_id.encode()),))

    async def _broadcast(self, request: Request, headers: Mapping[bytes, bytes]) -> Response:
        """`POST /4/broadcasts/apps/{bundle_id}`."""
        match request.scope["path"].removeprefix(BROADCAST_PREFIX).split("/"):
            case ["broadcasts", "apps", bundle_id] if bundle_id:
                _require_post(request)
            case _:
                raise Rejected(Reason.BAD_PATH)
        provider = await self._identify(request)
        body = await _read_body(request)
        request_id = await self._channels.publish(provider, bundle_id, headers, body)
        return Response(200, b"", ((b"apns-request-id", request_id.encode()),))

    async def _manage(self, request: Request, headers: Mapping[bytes, bytes]) -> Response:
        """`/1/apps/{bundle_id}/channels` and `/1/apps/{bundle_id}/all-channels`."""
        bundle_id, resource = _channels_of(request)
        provider = await self._identify(request)
        request_id = (read_request_id(headers) or self._clock.new_id()).encode()
        echo = (b"apns-request-id", request_id)
        match resource, request.scope["method"]:
            case "all-channels", "GET":
                body = {"channels": await self._channels.list(provider, bundle_id)}
                return Response(200, msgspec.json.encode(body), (_JSON, echo))
            case "channels", "POST":
                body_in = await _read_body(request)
                channel_id = await self._channels.create(provider, bundle_id, body_in)
                return Response(201, b"", ((b"apns-channel-id", channel_id.encode()), echo))
            case "channels", "GET":
                config = await self._channels.get(provider, bundle_id, headers)
                return Response(200, msgspec.json.encode(config), (_JSON, echo))
            case "channels", "DELETE":
                await self._channels.delete(provider, bundle_id, headers)
                return Response(204, b"", (echo,))
            case _:
                raise Rejected(Reason.METHOD_NOT_ALLOWED)

    def _find_known(self, request: Request) -> Provider | None:
        authorization = request.headers.get(b"authorization")
        return self._tokens.find_known(authorization, request.connection_key, self._clock.now())

    def _identify(self, request: Request) -> Awaitable[Provider]:
        authorization = request.headers.get(b"authorization")
        return self._tokens.identify(authorization, request.connection_key, self._clock.now())

    async def _guard(
        self,
        answer: Callable[[Request, Mapping[bytes, bytes]], Awaitable[Response]],
        id_header: bytes,
        request: Request,
    ) -> Response:
        """Answer every rejection and failure in the format of APNs."""
        try:
            self._check_running()
            check_repeated(request.scope["headers"], request.headers)
            response = await answer(request, request.headers)
        except Rejected as rejected:
            response = self._reject(request, id_header, rejected)
        except ClarionError as error:
            log_failure("push_not_stored", error, request_id=request.id)
            response = self._reject(request, id_header, Rejected(Reason.SERVICE_UNAVAILABLE))
        except Exception:  # noqa: BLE001 - a provider always gets a response it can read
            get_logger().exception("push_failed", request_id=request.id)
            response = self._reject(request, id_header, Rejected(Reason.INTERNAL_SERVER_ERROR))
        if not request.is_whole or response.status >= _FIRST_ERROR:
            await request.discard()
        return response

    def _check_running(self) -> None:
        if self._is_stopping():
            raise Rejected(Reason.SHUTDOWN)

    def _reject(self, request: Request, id_header: bytes, rejected: Rejected) -> Response:
        body: dict[str, object] = {"reason": rejected.reason.value}
        if rejected.timestamp is not None:
            body["timestamp"] = rejected.timestamp
        headers = [_JSON, (id_header, self._echo(request, id_header))]
        if rejected.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % rejected.retry_after_s))
        if rejected.reason is Reason.METHOD_NOT_ALLOWED:
            headers.append((b"allow", _methods_of(request.scope["path"])))
        return Response(rejected.reason.status, msgspec.json.encode(body), tuple(headers))

    def _echo(self, request: Request, id_header: bytes) -> bytes:
        """Return the id that the provider gave, or a new one if it gave none.

        A malformed one is echoed too, if a header can hold it: it may be all that a client has to
        find its request.
        """
        given = request.header(id_header) or request.header(b"apns-id") or ""
        return (given if _ECHOED.fullmatch(given) else self._clock.new_id()).encode()


def _methods_of(path: str) -> bytes:
    if not path.startswith(CHANNELS_PREFIX):
        return b"POST"
    return b"GET" if path.endswith("/all-channels") else b"DELETE, GET, POST"


def _token_of(request: Request) -> str:
    path: str = request.scope["path"]
    resource, _, token = path.removeprefix(DEVICE_PREFIX).partition("/")
    if resource != "device" or "/" in token:
        raise Rejected(Reason.BAD_PATH)
    _require_post(request)
    return token


def _channels_of(request: Request) -> tuple[str, str]:
    """Return the bundle id, and `channels` (one broadcast channel) or `all-channels`."""
    match request.scope["path"].removeprefix(CHANNELS_PREFIX).split("/"):
        case ["apps", bundle_id, "channels" | "all-channels" as resource] if bundle_id:
            return bundle_id, resource
        case _:
            raise Rejected(Reason.BAD_PATH)


def _require_post(request: Request) -> None:
    if request.scope["method"] != "POST":
        raise Rejected(Reason.METHOD_NOT_ALLOWED)


async def _read_body(request: Request) -> bytes:
    try:
        return await request.body(LARGE_PAYLOAD_LIMIT_BYTES)
    except BodyTooLarge as error:
        raise Rejected(Reason.PAYLOAD_TOO_LARGE) from error
