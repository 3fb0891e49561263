-- Which installation a database is of: one row. `seal` is sealed with the master key, so that a node
-- with another key is recognised before it writes anything.
CREATE TABLE installation (
  id TEXT PRIMARY KEY,
  slot INTEGER NOT NULL UNIQUE,
  seal BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  -- The copy that `clarion migrate-data` makes of this database. Whoever opens the database removes
  -- it, because the copy may then lack what is written.
  copy_id TEXT
);

-- How far `clarion migrate-data` has come with each table that it copies into this database.
CREATE TABLE copied_tables (
  name TEXT PRIMARY KEY,
  copy_id TEXT NOT NULL,
  -- The primary key of the last row, as MessagePack.
  last_key BYTEA,
  row_count BIGINT NOT NULL,
  checksum TEXT NOT NULL,
  is_complete INTEGER NOT NULL
);
