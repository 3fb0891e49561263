-- Nodes: who works on this database, which of them does what one does for all, and who has claimed
-- a job. A node that dies stops to write its row; others take over what it had claimed.

CREATE TABLE nodes (
  -- Of one process: another start is another node.
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  version TEXT NOT NULL,
  started_at BIGINT NOT NULL,
  seen_at BIGINT NOT NULL
);

-- One row. The token counts the leaders.
CREATE TABLE leader (
  id INTEGER PRIMARY KEY,
  node_id TEXT NOT NULL,
  token BIGINT NOT NULL,
  until BIGINT NOT NULL
);

-- Of the latest claim.
ALTER TABLE jobs ADD COLUMN node_id TEXT NOT NULL DEFAULT '';
