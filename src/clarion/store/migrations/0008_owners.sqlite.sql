-- A token is unique within its app: an app neither finds nor takes the tokens of another.
-- The index begins with the token, because a device that connects names no app.
-- SQLite cannot drop the constraint of a column, so the table is made anew.

CREATE TABLE devices_of_apps (
  id TEXT PRIMARY KEY,
  app_id TEXT NOT NULL,
  token_hash BYTEA NOT NULL,
  secret_hash BYTEA NOT NULL,
  platform TEXT NOT NULL,
  user_id TEXT,
  model TEXT,
  os_version TEXT,
  app_version TEXT,
  language TEXT,
  timezone TEXT,
  label TEXT,
  created_at BIGINT NOT NULL,
  last_seen_at BIGINT NOT NULL,
  invalidated_at BIGINT,
  invalidation_reason TEXT
);
INSERT INTO devices_of_apps (id, app_id, token_hash, secret_hash, platform, user_id, model,
  os_version, app_version, language, timezone, label, created_at, last_seen_at, invalidated_at,
  invalidation_reason)
SELECT id, app_id, token_hash, secret_hash, platform, user_id, model, os_version, app_version,
  language, timezone, label, created_at, last_seen_at, invalidated_at, invalidation_reason
FROM devices;
DROP TABLE devices;
ALTER TABLE devices_of_apps RENAME TO devices;
CREATE UNIQUE INDEX devices_by_token ON devices (token_hash, app_id);
CREATE INDEX devices_by_app ON devices (app_id, id);
CREATE INDEX devices_by_user ON devices (app_id, user_id, id) WHERE user_id IS NOT NULL;
CREATE INDEX devices_ended ON devices (invalidated_at) WHERE invalidated_at > 0;

-- Users subscribe their devices to open topics only. The id of a broadcast channel cannot be guessed:
-- whoever knows it was given it by the app.
ALTER TABLE device_topics ADD COLUMN is_open INTEGER NOT NULL DEFAULT 0;
UPDATE device_topics SET is_open = 1 WHERE is_broadcast_channel = 1;

-- Each node looks for users who became inactive, of all apps in one statement.
CREATE INDEX users_inactive ON users (updated_at, app_id, id) WHERE status = 'inactive';
