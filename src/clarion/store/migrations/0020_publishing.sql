-- Users follow the same topics that devices subscribe to: one table has them all.
ALTER TABLE device_topics RENAME TO topics;
INSERT INTO topics
(app_id, topic, is_broadcast_channel, storage_policy, last_sequence, is_open, created_at)
SELECT app_id, topic, 0, -1, 0, 0, MIN(created_at) FROM follows WHERE true GROUP BY app_id, topic
ON CONFLICT (app_id, topic) DO NOTHING;

-- The highest sequence of the topic when the device subscribed: it gets the messages after it.
ALTER TABLE subscriptions ADD COLUMN since_sequence BIGINT NOT NULL DEFAULT 0;

-- The categories that apps have beside the built-in ones.
CREATE TABLE categories (
  app_id TEXT NOT NULL,
  name TEXT NOT NULL,
  title TEXT NOT NULL,
  description TEXT,
  default_channels TEXT NOT NULL,
  user_can_disable INTEGER NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, name)
);
-- The category of a type, if it is one of the app's own: it cannot be deleted meanwhile.
ALTER TABLE notification_types ADD COLUMN own_category TEXT;
CREATE INDEX notification_types_by_category ON notification_types (app_id, own_category)
WHERE own_category IS NOT NULL;
