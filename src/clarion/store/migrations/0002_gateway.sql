-- Devices, what is sent to them, the topics they hear, and the feedback about those that are gone.
-- Everything about a device leads with its id, so that the tables can be split by it.

CREATE TABLE devices (
  id TEXT PRIMARY KEY,
  app_id TEXT NOT NULL,
  token_hash BYTEA NOT NULL UNIQUE,
  secret_hash BYTEA NOT NULL,
  platform TEXT NOT NULL,
  user_id TEXT,
  model TEXT,
  os_version TEXT,
  app_version TEXT,
  language TEXT,
  timezone TEXT,
  label TEXT,
  created_at BIGINT NOT NULL,
  last_seen_at BIGINT NOT NULL,
  invalidated_at BIGINT,
  invalidation_reason TEXT
);
CREATE INDEX devices_by_app ON devices (app_id, id);
CREATE INDEX devices_by_user ON devices (app_id, user_id, id) WHERE user_id IS NOT NULL;

-- History and store-and-forward in one: a message waits while it is pending or queued.
-- `sequence` orders the messages of this installation by acceptance; ids may be the provider's own.
CREATE TABLE messages (
  device_id TEXT NOT NULL,
  id TEXT NOT NULL,
  app_id TEXT NOT NULL,
  sequence BIGINT NOT NULL,
  payload BYTEA NOT NULL,
  priority INTEGER NOT NULL,
  collapse_id TEXT,
  is_stored INTEGER NOT NULL,
  status TEXT NOT NULL,
  reason TEXT,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (device_id, id)
);
CREATE INDEX messages_waiting ON messages (device_id, priority DESC, sequence)
  WHERE status IN ('pending', 'queued') AND is_stored = 1;
CREATE INDEX messages_collapsing ON messages (device_id, collapse_id, sequence)
  WHERE status IN ('pending', 'queued') AND collapse_id IS NOT NULL;
CREATE INDEX messages_expiring ON messages (expires_at) WHERE status IN ('pending', 'queued');
CREATE INDEX messages_by_device ON messages (device_id, sequence);
CREATE INDEX messages_by_app ON messages (app_id, sequence);

CREATE TABLE feedback (
  app_id TEXT NOT NULL,
  invalidated_at BIGINT NOT NULL,
  token_hash BYTEA NOT NULL,
  reason TEXT NOT NULL,
  PRIMARY KEY (app_id, invalidated_at, token_hash)
);

-- A topic of devices, or an APNs broadcast channel. A message to it is written once.
-- `keeps` is how many messages wait for those who are away: all (-1), the last one (1) or none (0).
CREATE TABLE device_topics (
  app_id TEXT NOT NULL,
  topic TEXT NOT NULL,
  is_channel INTEGER NOT NULL,
  keeps INTEGER NOT NULL,
  last_sequence BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  deleted_at BIGINT,
  PRIMARY KEY (app_id, topic)
);

CREATE TABLE topic_messages (
  app_id TEXT NOT NULL,
  topic TEXT NOT NULL,
  sequence BIGINT NOT NULL,
  id TEXT NOT NULL,
  payload BYTEA NOT NULL,
  priority INTEGER NOT NULL,
  collapse_id TEXT,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, topic, sequence)
);
CREATE UNIQUE INDEX topic_messages_by_id ON topic_messages (app_id, topic, id);
CREATE INDEX topic_messages_collapsing ON topic_messages (app_id, topic, collapse_id)
  WHERE collapse_id IS NOT NULL;
CREATE INDEX topic_messages_expiring ON topic_messages (expires_at);

-- `cursor` is the sequence up to which the device has acknowledged the topic.
CREATE TABLE subscriptions (
  device_id TEXT NOT NULL,
  topic TEXT NOT NULL,
  app_id TEXT NOT NULL,
  cursor BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (device_id, topic)
);
CREATE INDEX subscriptions_by_topic ON subscriptions (app_id, topic, device_id);
