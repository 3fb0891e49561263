-- The key of a message begins with its id. Most ids are made when a message is accepted, in their order:
-- the messages of a moment are neighbours in the index, whatever devices they are for. By device, each
-- was on a page of its own, which was written to the log and to the file.
-- SQLite cannot change a primary key, so the table is made anew.

CREATE TABLE messages_by_id (
  device_id TEXT NOT NULL,
  id TEXT NOT NULL,
  app_id TEXT NOT NULL,
  sequence BIGINT NOT NULL,
  payload BYTEA NOT NULL,
  priority INTEGER NOT NULL,
  collapse_id TEXT,
  is_stored INTEGER NOT NULL,
  status TEXT NOT NULL,
  reason TEXT,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  notification_id TEXT,
  trace TEXT,
  PRIMARY KEY (id, device_id)
);
INSERT INTO messages_by_id (device_id, id, app_id, sequence, payload, priority, collapse_id,
  is_stored, status, reason, created_at, expires_at, updated_at, notification_id, trace)
SELECT device_id, id, app_id, sequence, payload, priority, collapse_id,
  is_stored, status, reason, created_at, expires_at, updated_at, notification_id, trace
FROM messages ORDER BY rowid;
DROP TABLE messages;
ALTER TABLE messages_by_id RENAME TO messages;
CREATE INDEX messages_waiting ON messages (device_id, priority DESC, sequence)
  WHERE status IN ('pending', 'queued') AND is_stored = 1;
CREATE INDEX messages_collapsing ON messages (device_id, collapse_id, sequence)
  WHERE status IN ('pending', 'queued') AND collapse_id IS NOT NULL;
CREATE INDEX messages_expiring ON messages (expires_at) WHERE status IN ('pending', 'queued');
CREATE INDEX messages_by_device ON messages (device_id, sequence);
CREATE INDEX messages_by_app ON messages (app_id, sequence);
CREATE INDEX messages_by_notification ON messages (notification_id)
  WHERE notification_id IS NOT NULL;
CREATE INDEX messages_ended ON messages (updated_at)
  WHERE updated_at > 0 AND status IN ('delivered', 'failed', 'expired');
