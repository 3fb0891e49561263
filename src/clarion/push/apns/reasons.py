"""The reasons with which APNs rejects a request, and the HTTP status of each."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """Why a provider's request was rejected, as APNs spells it, and the status if it is not 400."""

    _value_: str
    status: int

    def __new__(cls, text: str, status: int = 400) -> Self:
        reason = str.__new__(cls, text)
        reason._value_, reason.status = text, status
        return reason

    BAD_CHANNEL_ID = "BadChannelId"
    BAD_COLLAPSE_ID = "BadCollapseId"
    BAD_DEVICE_TOKEN = "BadDeviceToken"
    BAD_EXPIRATION_DATE = "BadExpirationDate"
    BAD_MESSAGE_ID = "BadMessageId"
    BAD_PATH = "BadPath", 404
    BAD_PRIORITY = "BadPriority"
    BAD_REQUEST_PARAMS = "BadRequestParams"
    BAD_REQUEST_PAYLOAD = "BadRequestPayload"
    BAD_TOPIC = "BadTopic"
    CANNOT_CREATE_CHANNEL_CONFIG = "CannotCreateChannelConfig"
    CHANNEL_NOT_REGISTERED = "ChannelNotRegistered"
    DUPLICATE_HEADERS = "DuplicateHeaders"
    EXPIRED_PROVIDER_TOKEN = "ExpiredProviderToken", 403
    EXPIRED_TOKEN = "ExpiredToken", 410
    INTERNAL_SERVER_ERROR = "InternalServerError", 500
    INVALID_PROVIDER_TOKEN = "InvalidProviderToken", 403
    INVALID_PUSH_TYPE = "InvalidPushType"
    METHOD_NOT_ALLOWED = "MethodNotAllowed", 405
    MISSING_CHANNEL_ID = "MissingChannelId"
    MISSING_DEVICE_TOKEN = "MissingDeviceToken"
    MISSING_PROVIDER_TOKEN = "MissingProviderToken", 403
    MISSING_PUSH_TYPE = "MissingPushType"
    MISSING_TOPIC = "MissingTopic"
    PAYLOAD_EMPTY = "PayloadEmpty"
    PAYLOAD_TOO_LARGE = "PayloadTooLarge", 413
    SERVICE_UNAVAILABLE = "ServiceUnavailable", 503
    SHUTDOWN = "Shutdown", 503
    TOO_MANY_PROVIDER_TOKEN_UPDATES = "TooManyProviderTokenUpdates", 429
    TOO_MANY_REQUESTS = "TooManyRequests", 429
    TOPIC_DISALLOWED = "TopicDisallowed"
    TOPIC_MISMATCH = "TopicMismatch", 403
    UNREGISTERED = "Unregistered", 410
    UNRELATED_KEY_ID_IN_TOKEN = "UnrelatedKeyIdInToken", 403


class Rejected(Exception):
    """Raised by the checks; the endpoint answers with the reason."""

    def __init__(
        self, reason: Reason, *, timestamp: int | None = None, retry_after_s: int | None = None
    ) -> None:
        self.reason = reason
        self.timestamp = timestamp  # since when a device token is not valid
        self.retry_after_s = retry_after_s
        super().__init__(reason.value)
