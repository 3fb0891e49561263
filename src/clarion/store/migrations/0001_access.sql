-- Apps, the keys that open their doors, the people who run Clarion, and what happened once.
-- Times are milliseconds UTC. Ids are UUIDv7 as text. BYTEA holds bytes on both engines.

CREATE TABLE apps (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  bundle_id TEXT NOT NULL UNIQUE,
  team_id TEXT NOT NULL,
  user_token_algorithm TEXT NOT NULL,
  user_token_key BYTEA NOT NULL,
  created_at BIGINT NOT NULL
);

CREATE TABLE provider_keys (
  key_id TEXT PRIMARY KEY,
  app_id TEXT NOT NULL,
  team_id TEXT NOT NULL,
  public_key TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  revoked_at BIGINT
);
CREATE INDEX provider_keys_by_app ON provider_keys (app_id, key_id);

CREATE TABLE api_keys (
  id TEXT PRIMARY KEY,
  app_id TEXT NOT NULL,
  label TEXT NOT NULL,
  scopes TEXT NOT NULL,
  secret_hash BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT,
  revoked_at BIGINT
);
CREATE INDEX api_keys_by_app ON api_keys (app_id, id);

CREATE TABLE administrators (
  id TEXT PRIMARY KEY,
  username TEXT NOT NULL UNIQUE,
  password_hash TEXT NOT NULL,
  role TEXT NOT NULL,
  created_at BIGINT NOT NULL
);

CREATE TABLE idempotency_keys (
  app_id TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BYTEA NOT NULL,
  answer BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, key)
);
CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at);
