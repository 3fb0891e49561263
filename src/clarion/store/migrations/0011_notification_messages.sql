-- What becomes of a notification depends on all its messages to devices. Other messages are not in
-- the index, and cost nothing more.

CREATE INDEX messages_by_notification ON messages (notification_id)
  WHERE notification_id IS NOT NULL;
