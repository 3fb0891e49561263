-- Apps can be changed and deleted, have several keys for user tokens, and name the origins of
-- their pages. API keys are rotated, and record when they were last used.

-- An app that was deleted stays as a mark until nothing of it is left.
ALTER TABLE apps ADD COLUMN deleted_at BIGINT;
CREATE INDEX apps_deleted ON apps (deleted_at) WHERE deleted_at > 0;
-- Apps of earlier releases accept browsers from everywhere, as before; new ones list their origins.
ALTER TABLE apps ADD COLUMN allowed_origins TEXT NOT NULL DEFAULT '["*"]';

-- Each key fits one algorithm: a shared secret (HS256) or a public key in PEM, sealed.
CREATE TABLE user_keys (
  app_id TEXT NOT NULL,
  kid TEXT NOT NULL,
  algorithm TEXT NOT NULL,
  key BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT,
  revoked_at BIGINT,
  PRIMARY KEY (app_id, kid)
);
INSERT INTO user_keys (app_id, kid, algorithm, key, created_at)
SELECT id, 'first', user_token_algorithm, user_token_key, created_at FROM apps;
ALTER TABLE apps DROP COLUMN user_token_algorithm;
ALTER TABLE apps DROP COLUMN user_token_key;

ALTER TABLE provider_keys ADD COLUMN expires_at BIGINT;
ALTER TABLE api_keys ADD COLUMN last_used_at BIGINT;
ALTER TABLE api_keys ADD COLUMN replaced_by TEXT;

-- Single-use tickets for streams and sockets. Redeeming one deletes it.
CREATE TABLE tickets (
  hash BYTEA PRIMARY KEY,
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  -- When the token expires that the ticket was made with.
  token_expires_at BIGINT,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX tickets_expiring ON tickets (expires_at);
CREATE INDEX tickets_by_app ON tickets (app_id, hash);

-- What an app has is found by the app when it is deleted.
CREATE INDEX push_endpoints_by_app ON push_endpoints (app_id, device_id, id);
