-- The Web Push endpoints of devices: URLs whose secret part is stored as its hash alone.

CREATE TABLE push_endpoints (
  device_id TEXT NOT NULL,
  id TEXT NOT NULL,
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  capability_hash BYTEA NOT NULL,
  vapid_key TEXT,
  label TEXT,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (device_id, id)
);
CREATE UNIQUE INDEX push_endpoints_by_capability ON push_endpoints (capability_hash);
