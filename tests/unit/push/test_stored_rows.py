"""The row of a message that is added: made by its record, in the order of the statement."""

from clarion.push.model import MessageReason, MessageStatus, PushPriority, StoredMessage
from clarion.push.sql.messages import ADD, add_steps
from tests.factories import make_message


def test_the_row_is_in_the_order_of_the_statement() -> None:
    message = make_message(collapse_id=None, notification_id="n1", priority=PushPriority.LOW)
    (step,) = add_steps(
        [StoredMessage(message, MessageStatus.QUEUED, MessageReason.DEVICE_OFFLINE)]
    )
    named = {name: getattr(message, name) for name in message._fields if name != "topic"}
    named |= {"status": "queued", "reason": "device_offline", "is_stored": int(message.is_stored)}
    assert step.rows == [ADD.bind(**named)]
