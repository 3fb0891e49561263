"""The reasons of the APNs endpoint, compared with what Apple documents."""

import pytest

from clarion.push.apns.reasons import Reason, Rejected

# Apple's tables for device pushes and for broadcasts.
DOCUMENTED: dict[int, str] = {
    400: """BadChannelId BadCollapseId BadDeviceToken BadExpirationDate BadMessageId BadPriority
        BadRequestParams BadRequestPayload BadTopic CannotCreateChannelConfig ChannelNotRegistered
        DeviceTokenNotForTopic DuplicateHeaders FeatureNotEnabled IdleTimeout InvalidPushType
        MissingChannelId MissingDeviceToken MissingPushType MissingTopic PayloadEmpty
        TopicDisallowed""",
    403: """BadCertificate BadCertificateEnvironment BadEnvironmentKeyIdInToken
        ExpiredProviderToken Forbidden InvalidProviderToken MissingProviderToken TopicMismatch
        UnrelatedKeyIdInToken""",
    404: "BadPath",
    405: "MethodNotAllowed",
    410: "ExpiredToken Unregistered",
    413: "PayloadTooLarge",
    429: "TooManyProviderTokenUpdates TooManyRequests",
    500: "InternalServerError",
    503: "ServiceUnavailable Shutdown",
}
STATUS = {reason: status for status, reasons in DOCUMENTED.items() for reason in reasons.split()}


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_one_of_apple_s_with_its_status(reason: Reason) -> None:
    assert reason.status == STATUS[reason.value]


def test_a_refusal_says_no_more_than_its_reason() -> None:
    refused = Rejected(Reason.UNREGISTERED, timestamp=5, retry_after_s=7)
    assert str(refused) == "Unregistered"
    assert (refused.timestamp, refused.retry_after_s) == (5, 7)
    assert Rejected(Reason.BAD_PATH).timestamp is None
