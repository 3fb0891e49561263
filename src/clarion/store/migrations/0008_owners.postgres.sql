-- A token is unique within its app: an app neither finds nor takes the tokens of another.
-- The index begins with the token, because a device that connects names no app.

ALTER TABLE devices DROP CONSTRAINT devices_token_hash_key;
CREATE UNIQUE INDEX devices_by_token ON devices (token_hash, app_id);

-- Users subscribe their devices to open topics only. The id of a broadcast channel cannot be guessed:
-- whoever knows it was given it by the app.
ALTER TABLE device_topics ADD COLUMN is_open INTEGER NOT NULL DEFAULT 0;
UPDATE device_topics SET is_open = 1 WHERE is_broadcast_channel = 1;

-- Each node looks for users who became inactive, of all apps in one statement.
CREATE INDEX users_inactive ON users (updated_at, app_id, id) WHERE status = 'inactive';
