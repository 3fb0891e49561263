-- Providers of the channels, and what became of what they were given.

-- How an app sends over a channel. `secrets` is a sealed JSON object; the settings are plain.
CREATE TABLE providers (
  app_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  settings TEXT NOT NULL,
  secrets BYTEA NOT NULL,
  position INTEGER NOT NULL,
  is_active INTEGER NOT NULL,
  timeout_s INTEGER NOT NULL,
  concurrency INTEGER NOT NULL,
  daily_cap INTEGER,
  is_sandbox INTEGER NOT NULL,
  disabled_reason TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, channel, name)
);

-- Keys that could do everything still can. The scopes of a key are sorted.
UPDATE api_keys SET scopes = REPLACE(scopes, 'notifications:write stats:read',
  'notifications:write providers:read providers:write stats:read')
WHERE scopes = 'audit:read devices:read devices:write events:read events:write keys:read keys:write notifications:read notifications:write stats:read topics:read topics:write types:read types:write users:read users:write';

-- Which provider an attempt was made with: after a failure, another may be tried.
ALTER TABLE attempts ADD COLUMN provider TEXT;

-- The address of a device that another push service reaches (its token or subscription), sealed;
-- and what the user has set for the device, as JSON.
ALTER TABLE devices ADD COLUMN address BYTEA;
ALTER TABLE devices ADD COLUMN preferences TEXT NOT NULL DEFAULT '{}';

-- The notification that a message to a device is part of. Its acknowledgement or expiry changes
-- the delivery.
ALTER TABLE messages ADD COLUMN notification_id TEXT;
