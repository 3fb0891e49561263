-- Analytics: how much happened in each minute, hour and day. These rows are counted from the others
-- in the background, so that a query costs the same however many notifications there are.

CREATE TABLE analytics (
  app_id TEXT NOT NULL,
  metric TEXT NOT NULL,
  step TEXT NOT NULL,
  -- The beginning of the minute, hour or day.
  at BIGINT NOT NULL,
  -- Empty if the metric does not have it.
  type TEXT NOT NULL,
  channel TEXT NOT NULL,
  platform TEXT NOT NULL,
  -- The reason, outcome or bucket, according to the metric.
  label TEXT NOT NULL,
  value BIGINT NOT NULL,
  PRIMARY KEY (app_id, metric, step, at, type, channel, platform, label)
);
CREATE INDEX analytics_by_time ON analytics (step, at);

-- How far everything is counted; one row. Its turn makes sure that nothing is added twice.
CREATE TABLE analytics_progress (
  id INTEGER PRIMARY KEY,
  turn BIGINT NOT NULL,
  counted_until BIGINT NOT NULL,
  settled_until BIGINT NOT NULL
);

-- What is read again after it was marked unread counts once.
ALTER TABLE notifications ADD COLUMN first_read_at BIGINT;
ALTER TABLE notifications ADD COLUMN clicked_at BIGINT;

-- What is new is found by its id, which begins with the time. What happens later is found by these.
-- The inbox has a notification in the commit that decides it, so most rows are in none of them.
-- Each condition is one that only the statement for it has, so that no other takes the index.
CREATE INDEX notifications_first_read ON notifications (first_read_at) WHERE first_read_at > 0;
CREATE INDEX notifications_dismissed ON notifications (dismissed_at) WHERE dismissed_at > 0;
CREATE INDEX notifications_clicked ON notifications (clicked_at) WHERE clicked_at > 0;
CREATE INDEX deliveries_sent ON deliveries (sent_at)
  WHERE sent_at > 0 AND (channel <> 'in_app' OR past_decisions <> '[]');
CREATE INDEX deliveries_delivered ON deliveries (delivered_at)
  WHERE delivered_at > 0 AND (channel <> 'in_app' OR past_decisions <> '[]');
CREATE INDEX deliveries_unsuccessful ON deliveries (decided_at)
  WHERE decided_at > 0 AND status IN ('failed', 'expired', 'cancelled');
CREATE INDEX messages_ended ON messages (updated_at)
  WHERE updated_at > 0 AND status IN ('delivered', 'failed', 'expired');
