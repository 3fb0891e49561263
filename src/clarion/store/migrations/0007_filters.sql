-- A list with a filter reads an index that leads with it: a page costs the same, however much the
-- filter leaves out.

-- A notification is in one of the two, so it costs one index. Each condition is one that only the
-- statements for it have, so that PostgreSQL never takes the index for another page and sorts it.
CREATE INDEX notifications_unread_by_category ON notifications (app_id, user_id, category, id)
  WHERE category > '' AND is_shown = 1 AND dismissed_at IS NULL AND read_at IS NULL;
CREATE INDEX notifications_read_by_category ON notifications (app_id, user_id, category, id)
  WHERE category > '' AND is_shown = 1 AND dismissed_at IS NULL AND read_at IS NOT NULL;
CREATE INDEX device_topics_by_kind ON device_topics (app_id, is_broadcast_channel, topic)
  WHERE deleted_at IS NULL;
CREATE INDEX deliveries_of_digest ON deliveries (app_id, user_id, digest, notification_id)
  WHERE status = 'collected';
