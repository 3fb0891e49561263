-- Administrators with roles per app, their sessions, second factors, keys and set-up links, and the
-- counters of failed sign-ins. Of everything that signs somebody in only a hash is stored; the
-- secrets of TOTP are sealed.

-- An administrator who has not used the set-up link yet has no password; one who has roles for
-- single apps only has no role for all of them.
CREATE TABLE new_administrators (
  id TEXT PRIMARY KEY,
  username TEXT NOT NULL UNIQUE,
  password_hash TEXT,
  role TEXT,
  app_roles TEXT NOT NULL,
  networks TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  disabled_at BIGINT,
  password_changed_at BIGINT,
  version BIGINT NOT NULL
);
INSERT INTO new_administrators
SELECT id, username, password_hash, role, '{}', '[]', created_at, NULL, NULL, 1 FROM administrators;
DROP TABLE administrators;
ALTER TABLE new_administrators RENAME TO administrators;

-- One link for each administrator, by its id; the first administrator is made with the one whose id
-- is empty. That one stays when it was used: it shows that the installation was set up.
CREATE TABLE admin_links (
  id TEXT PRIMARY KEY,
  token_hash BYTEA NOT NULL UNIQUE,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);

CREATE TABLE admin_sessions (
  id TEXT PRIMARY KEY,
  administrator_id TEXT NOT NULL,
  secret_hash BYTEA NOT NULL UNIQUE,
  created_at BIGINT NOT NULL,
  last_seen_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  mfa_at BIGINT,
  confirmed_at BIGINT NOT NULL,
  address TEXT NOT NULL,
  user_agent TEXT NOT NULL
);
CREATE INDEX admin_sessions_by_administrator ON admin_sessions (administrator_id, id);
CREATE INDEX admin_sessions_by_expiry ON admin_sessions (expires_at);

-- Devices on which a second factor was given, and which are not asked for it for a while.
CREATE TABLE trusted_devices (
  token_hash BYTEA PRIMARY KEY,
  administrator_id TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX trusted_devices_by_administrator ON trusted_devices (administrator_id);
CREATE INDEX trusted_devices_by_expiry ON trusted_devices (expires_at);

CREATE TABLE admin_keys (
  id TEXT PRIMARY KEY,
  administrator_id TEXT NOT NULL,
  label TEXT NOT NULL,
  role TEXT NOT NULL,
  secret_hash BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT,
  last_used_at BIGINT,
  revoked_at BIGINT
);
CREATE INDEX admin_keys_by_administrator ON admin_keys (administrator_id, id);

-- `state` is current, or new until its first code was given. `last_step` is the latest time step
-- whose code was accepted.
CREATE TABLE totp_secrets (
  administrator_id TEXT NOT NULL,
  state TEXT NOT NULL,
  secret BYTEA NOT NULL,
  last_step BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (administrator_id, state)
);

CREATE TABLE recovery_codes (
  administrator_id TEXT NOT NULL,
  code_hash BYTEA NOT NULL,
  salt BYTEA NOT NULL,
  PRIMARY KEY (administrator_id, code_hash)
);

-- Failed attempts by account, address or device. Unknown names are counted alike.
CREATE TABLE sign_in_attempts (
  key TEXT PRIMARY KEY,
  failures BIGINT NOT NULL,
  last_at BIGINT NOT NULL,
  locked_until BIGINT NOT NULL
);
CREATE INDEX sign_in_attempts_by_time ON sign_in_attempts (last_at);
