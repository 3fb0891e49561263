-- The ids of master keys that were replaced: a node that still has one must not seal with it.
CREATE TABLE retired_keys (
  id TEXT PRIMARY KEY,
  retired_at BIGINT NOT NULL
);
