-- The audit log: who did what, when, where and with which result. Each entry is signed by whoever
-- writes it, in the unit of the change; a moment later it gets its number and is linked to the one
-- before it. `app_id` is empty for what belongs to the installation.

CREATE TABLE audit_entries (
  id TEXT PRIMARY KEY,
  app_id TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  actor_kind TEXT NOT NULL,
  actor_id TEXT NOT NULL,
  action TEXT NOT NULL,
  subject TEXT,
  target TEXT NOT NULL,
  result TEXT NOT NULL,
  reason TEXT,
  address TEXT,
  request_id TEXT,
  node TEXT NOT NULL,
  signature TEXT NOT NULL,
  sequence BIGINT,
  link TEXT
);
CREATE UNIQUE INDEX audit_entries_by_sequence ON audit_entries (sequence);
CREATE INDEX audit_entries_waiting ON audit_entries (id) WHERE sequence IS NULL;
CREATE INDEX audit_entries_by_app ON audit_entries (app_id, created_at, id);
CREATE INDEX audit_entries_by_app_action ON audit_entries (app_id, action, created_at, id);
CREATE INDEX audit_entries_by_app_actor ON audit_entries (app_id, actor_id, created_at, id);
CREATE INDEX audit_entries_by_app_subject ON audit_entries (app_id, subject, created_at, id);
CREATE INDEX audit_entries_by_time ON audit_entries (created_at, id);
CREATE INDEX audit_entries_by_action ON audit_entries (action, created_at, id);
CREATE INDEX audit_entries_by_actor ON audit_entries (actor_id, created_at, id);

-- One row: the last entry of the chain, and the last one that was pruned.
CREATE TABLE audit_chain (
  id TEXT PRIMARY KEY,
  sequence BIGINT NOT NULL,
  link TEXT NOT NULL,
  pruned_sequence BIGINT NOT NULL,
  pruned_link TEXT NOT NULL,
  pruned_signature TEXT NOT NULL
);

-- Keys that entries were signed with, sealed, from the master keys that were replaced since.
CREATE TABLE audit_keys (
  id TEXT PRIMARY KEY,
  sealed_key BYTEA NOT NULL,
  created_at BIGINT NOT NULL
);
