"""The reasons with which APNs rejects a request, and the HTTP status of each."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a provider's request was rejected, as APNs spells it."""

    BAD_CHANNEL_ID = "BadChannelId"
    BAD_COLLAPSE_ID = "BadCollapseId"
    BAD_DEVICE_TOKEN = "BadDeviceToken"
    BAD_EXPIRATION_DATE = "BadExpirationDate"
    BAD_MESSAGE_ID = "BadMessageId"
    BAD_PATH = "BadPath"
    BAD_PRIORITY = "BadPriority"
    BAD_REQUEST_PARAMS = "BadRequestParams"
    BAD_REQUEST_PAYLOAD = "BadRequestPayload"
    BAD_TOPIC = "BadTopic"
    CANNOT_CREATE_CHANNEL_CONFIG = "CannotCreateChannelConfig"
    CHANNEL_NOT_REGISTERED = "ChannelNotRegistered"
    DEVICE_TOKEN_NOT_FOR_TOPIC = "DeviceTokenNotForTopic"
    DUPLICATE_HEADERS = "DuplicateHeaders"
    EXPIRED_PROVIDER_TOKEN = "ExpiredProviderToken"
    EXPIRED_TOKEN = "ExpiredToken"
    INTERNAL_SERVER_ERROR = "InternalServerError"
    INVALID_PROVIDER_TOKEN = "InvalidProviderToken"
    INVALID_PUSH_TYPE = "InvalidPushType"
    METHOD_NOT_ALLOWED = "MethodNotAllowed"
    MISSING_CHANNEL_ID = "MissingChannelId"
    MISSING_DEVICE_TOKEN = "MissingDeviceToken"
    MISSING_PROVIDER_TOKEN = "MissingProviderToken"
    MISSING_PUSH_TYPE = "MissingPushType"
    MISSING_TOPIC = "MissingTopic"
    PAYLOAD_EMPTY = "PayloadEmpty"
    PAYLOAD_TOO_LARGE = "PayloadTooLarge"
    SERVICE_UNAVAILABLE = "ServiceUnavailable"
    SHUTDOWN = "Shutdown"
    TOO_MANY_PROVIDER_TOKEN_UPDATES = "TooManyProviderTokenUpdates"
    TOO_MANY_REQUESTS = "TooManyRequests"
    TOPIC_DISALLOWED = "TopicDisallowed"
    TOPIC_MISMATCH = "TopicMismatch"
    UNREGISTERED = "Unregistered"
    UNRELATED_KEY_ID_IN_TOKEN = "UnrelatedKeyIdInToken"


_BAD_REQUEST = 400
# All others are 400.
_STATUS = {
    Reason.EXPIRED_PROVIDER_TOKEN: 403,
    Reason.INVALID_PROVIDER_TOKEN: 403,
    Reason.MISSING_PROVIDER_TOKEN: 403,
    Reason.TOPIC_MISMATCH: 403,
    Reason.UNRELATED_KEY_ID_IN_TOKEN: 403,
    Reason.BAD_PATH: 404,
    Reason.METHOD_NOT_ALLOWED: 405,
    Reason.EXPIRED_TOKEN: 410,
    Reason.UNREGISTERED: 410,
    Reason.PAYLOAD_TOO_LARGE: 413,
    Reason.TOO_MANY_PROVIDER_TOKEN_UPDATES: 429,
    Reason.TOO_MANY_REQUESTS: 429,
    Reason.INTERNAL_SERVER_ERROR: 500,
    Reason.SERVICE_UNAVAILABLE: 503,
    Reason.SHUTDOWN: 503,
}


def status_of(reason: Reason) -> int:
    """Return the HTTP status of a reason."""
    return _STATUS.get(reason, _BAD_REQUEST)


class Rejected(Exception):
    """Raised by the checks; the endpoint answers with the reason."""

    def __init__(
        self, reason: Reason, *, timestamp: int | None = None, retry_after_s: int | None = None
    ) -> None:
        self.reason = reason
        self.timestamp = timestamp  # since when a device token is not valid
        self.retry_after_s = retry_after_s
        super().__init__(reason.value)
