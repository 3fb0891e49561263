-- From event to inbox: what happened, the work that waits, what people were told, and how it went.

CREATE TABLE events (
  app_id TEXT NOT NULL,
  id TEXT NOT NULL,
  type TEXT NOT NULL,
  audience TEXT NOT NULL,
  content TEXT NOT NULL,
  priority INTEGER NOT NULL,
  dedupe_key TEXT,
  status TEXT NOT NULL,
  retry_count INTEGER NOT NULL,
  last_error TEXT,
  -- People who are still to be decided for; a large audience is counted as it is expanded.
  remaining BIGINT NOT NULL,
  notification_count BIGINT NOT NULL,
  scheduled_at BIGINT,
  expires_at BIGINT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, id)
);
-- Those that somebody looks for. What goes well is found by its id, and costs no index.
CREATE INDEX events_by_status ON events (app_id, status, id)
  WHERE status IN ('scheduled', 'failed', 'cancelled', 'expired', 'rate_limited', 'deduplicated');

-- Work that waits. A claim moves `due_at` to the end of its lease and raises `token`: if the worker
-- dies the job is due again by itself, and a worker that wakes late holds a token that is no more.
-- Lanes are the priorities; a dead letter is in lane -1, where nobody claims.
CREATE TABLE jobs (
  id TEXT PRIMARY KEY,
  lane INTEGER NOT NULL,
  due_at BIGINT NOT NULL,
  token BIGINT NOT NULL,
  tries INTEGER NOT NULL,
  kind TEXT NOT NULL,
  app_id TEXT NOT NULL,
  event_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  subject TEXT NOT NULL
);
CREATE INDEX jobs_due ON jobs (lane, due_at);
CREATE INDEX jobs_of_person ON jobs (app_id, user_id) WHERE kind IN ('held', 'digest');
CREATE INDEX jobs_dead ON jobs (event_id) WHERE lane = -1;

-- One row for each person an event was for, also if it was dropped or folded: then it is not shown.
CREATE TABLE notifications (
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  id TEXT NOT NULL,
  event_id TEXT NOT NULL,
  type TEXT NOT NULL,
  category TEXT NOT NULL,
  priority INTEGER NOT NULL,
  title TEXT,
  body TEXT NOT NULL,
  content TEXT NOT NULL,
  count BIGINT NOT NULL,
  is_shown INTEGER NOT NULL,
  folded_into TEXT,
  -- That of the last change of what the person sees.
  sequence BIGINT NOT NULL,
  read_at BIGINT,
  dismissed_at BIGINT,
  expires_at BIGINT,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, user_id, id)
);
CREATE INDEX notifications_by_event ON notifications (app_id, event_id, id);
CREATE INDEX notifications_shown ON notifications (app_id, user_id, id)
  WHERE is_shown = 1 AND dismissed_at IS NULL;
CREATE INDEX notifications_unread ON notifications (app_id, user_id, id)
  WHERE is_shown = 1 AND dismissed_at IS NULL AND read_at IS NULL;
-- What is shown has a number. The condition is not `is_shown = 1`, so that PostgreSQL never takes
-- this index for a page of the inbox, and sorts all of it: before it has statistics it would.
CREATE INDEX notifications_by_sequence ON notifications (app_id, user_id, sequence)
  WHERE sequence > 0;

-- Counted, not derived: reading it costs the same however much is in the inbox.
CREATE TABLE inboxes (
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  unread_count BIGINT NOT NULL,
  sequence BIGINT NOT NULL,
  PRIMARY KEY (app_id, user_id)
);

CREATE TABLE deliveries (
  notification_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT NOT NULL,
  rule TEXT NOT NULL,
  until BIGINT,
  -- What was decided before, oldest first, as JSON.
  story TEXT NOT NULL,
  digest TEXT,
  count BIGINT NOT NULL,
  attempt_count INTEGER NOT NULL,
  provider TEXT,
  sent_at BIGINT,
  delivered_at BIGINT,
  last_attempt_at BIGINT,
  error_code TEXT,
  error_message TEXT,
  decided_at BIGINT NOT NULL,
  PRIMARY KEY (notification_id, channel)
);
CREATE INDEX deliveries_waiting ON deliveries (app_id, user_id, notification_id)
  WHERE status IN ('held', 'collected');

CREATE TABLE attempts (
  notification_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  number INTEGER NOT NULL,
  device_id TEXT NOT NULL,
  status TEXT NOT NULL,
  provider_response TEXT,
  error_code TEXT,
  error_message TEXT,
  attempted_at BIGINT NOT NULL,
  PRIMARY KEY (notification_id, channel, number, device_id)
);

-- The two atomic claims. Their ids begin with the person's.
CREATE TABLE dedupes (
  app_id TEXT NOT NULL,
  id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  notification_id TEXT NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, id)
);
CREATE INDEX dedupes_expiring ON dedupes (expires_at);

CREATE TABLE limit_counts (
  app_id TEXT NOT NULL,
  id TEXT NOT NULL,
  used BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, id)
);
CREATE INDEX limit_counts_expiring ON limit_counts (expires_at);

-- Devices that ended are kept for a while, so that a provider is told so, and then deleted.
-- The condition is one that only the statement for it has, so that no other takes this index.
CREATE INDEX devices_ended ON devices (invalidated_at) WHERE invalidated_at > 0;
