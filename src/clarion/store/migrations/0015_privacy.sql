-- Privacy: the erasures of users, and what is needed to find everything that is about a user.

-- An erasure is a tombstone, which keeps late writes out, and its receipt. It holds no personal
-- data: `user_hash` is keyed, and `subject` (what is still looked for, sealed) is removed at the end.
-- The status is running, then settling (erased; late writes are looked for once more), then done.
CREATE TABLE erasures (
  app_id TEXT NOT NULL,
  id TEXT NOT NULL,
  user_hash BYTEA NOT NULL,
  subject BYTEA,
  cause TEXT NOT NULL,
  status TEXT NOT NULL,
  counts TEXT NOT NULL,
  -- When a node looks after it again: the one that works on it moves this ahead.
  due_at BIGINT NOT NULL,
  requested_at BIGINT NOT NULL,
  completed_at BIGINT,
  PRIMARY KEY (app_id, id)
);
CREATE INDEX erasures_by_user ON erasures (app_id, user_hash, id);
CREATE INDEX erasures_open ON erasures (due_at) WHERE status IN ('running', 'settling');

-- The key of the hashes of an app, sealed. It stays the same when the master key is replaced.
CREATE TABLE erasure_keys (
  app_id TEXT PRIMARY KEY,
  key BYTEA NOT NULL,
  created_at BIGINT NOT NULL
);

-- Whose a device was before: messages to it with a sequence after `since`, up to `until`, were sent
-- to this user. Written when a device gets another user or is deleted.
CREATE TABLE former_device_users (
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  device_id TEXT NOT NULL,
  token_hash BYTEA NOT NULL,
  since BIGINT NOT NULL,
  until BIGINT NOT NULL,
  PRIMARY KEY (app_id, user_id, device_id, until)
);
CREATE INDEX former_device_users_by_device ON former_device_users (device_id, until);
CREATE INDEX former_device_users_by_time ON former_device_users (until);

-- Whom a stored response is about, if it is about one user.
ALTER TABLE idempotency_keys ADD COLUMN user_id TEXT;
CREATE INDEX idempotency_keys_by_user ON idempotency_keys (app_id, user_id, key)
  WHERE user_id IS NOT NULL;

CREATE INDEX feedback_by_token ON feedback (app_id, token_hash);

-- Deleted users of all apps, in the order in which they were deleted. The condition is one that
-- only the statements for it have, so that no other takes this index.
CREATE INDEX users_deleted ON users (deleted_at, app_id, id) WHERE deleted_at > 0;
