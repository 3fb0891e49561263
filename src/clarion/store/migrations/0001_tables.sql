-- The tables of Clarion on both engines, slice by slice; `0002` has what the engines write differently.
--
-- Times are milliseconds UTC. Ids are UUIDv7 as text, unless an app chooses them. BYTEA holds bytes on
-- both engines; flags are 0 or 1. What belongs to an app has its `app_id`. There are no foreign keys.
--
-- Some partial indexes have a condition that looks superfluous, such as `deleted_at > 0`. Only the
-- statements that need the index have it, so that the planner takes the index for no other.


-- INSTALLATION

-- Which installation this database is of: one row.
CREATE TABLE installation (
  id TEXT PRIMARY KEY,
  slot INTEGER NOT NULL UNIQUE,
  -- Sealed with the master key: a node with another key is recognised before it writes anything.
  seal BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  -- The unfinished copy of this database by `clarion migrate-data`. Opening the database clears it,
  -- because the copy may then lack what is written.
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

-- The ids of master keys that were replaced: a node that still has one must not seal with it.
CREATE TABLE retired_keys (
  id TEXT PRIMARY KEY,
  retired_at BIGINT NOT NULL
);


-- NODES

-- The processes that work on this database. If one stops updating `seen_at`, others take its jobs.
CREATE TABLE nodes (
  -- Of one process: a restart is another node.
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  version TEXT NOT NULL,
  started_at BIGINT NOT NULL,
  seen_at BIGINT NOT NULL
);

-- The node that does what one node does for all: one row. `token` counts the leaders.
CREATE TABLE leader (
  id INTEGER PRIMARY KEY,
  node_id TEXT NOT NULL,
  token BIGINT NOT NULL,
  until BIGINT NOT NULL
);


-- ACCESS

-- The applications that use this installation.
CREATE TABLE apps (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  bundle_id TEXT NOT NULL UNIQUE,
  team_id TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  -- A deleted app stays as a mark until none of its rows is left.
  deleted_at BIGINT,
  -- The origins of web pages that may call with user tokens, as JSON.
  allowed_origins TEXT NOT NULL DEFAULT '["*"]',
  -- Notifications that a user of the app gets in an hour; NULL: as the settings say.
  user_per_hour INTEGER,
  category_per_hour INTEGER
);
CREATE INDEX apps_deleted ON apps (deleted_at) WHERE deleted_at > 0;

-- The public keys of providers, which sign the tokens of push requests.
CREATE TABLE provider_keys (
  key_id TEXT PRIMARY KEY,
  app_id TEXT NOT NULL,
  team_id TEXT NOT NULL,
  public_key TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  revoked_at BIGINT,
  expires_at BIGINT
);
CREATE INDEX provider_keys_by_app ON provider_keys (app_id, key_id);

-- The keys with which an app calls the API; only a hash of each is stored.
CREATE TABLE api_keys (
  id TEXT PRIMARY KEY,
  app_id TEXT NOT NULL,
  label TEXT NOT NULL,
  -- Sorted, with a space between two.
  scopes TEXT NOT NULL,
  secret_hash BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT,
  revoked_at BIGINT,
  last_used_at BIGINT,
  replaced_by TEXT
);
CREATE INDEX api_keys_by_app ON api_keys (app_id, id);
-- Live keys are counted when one more is created; revoked ones may be many.
CREATE INDEX live_api_keys ON api_keys (app_id, expires_at) WHERE revoked_at IS NULL;

-- The keys that verify user tokens, sealed: each is a shared secret (HS256) or a public key in PEM.
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

-- Single-use tickets for streams and sockets. Redeeming one deletes it.
CREATE TABLE tickets (
  hash BYTEA PRIMARY KEY,
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  -- When the user token expires with which the ticket was made.
  token_expires_at BIGINT,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX tickets_expiring ON tickets (expires_at);
CREATE INDEX tickets_by_app ON tickets (app_id, hash);

-- Responses to requests with an `Idempotency-Key`, sealed, so that a repeated request gets the same.
CREATE TABLE idempotency_keys (
  app_id TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BYTEA NOT NULL,
  answer BYTEA NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  -- The user whom the response is about, if it is about one.
  user_id TEXT,
  PRIMARY KEY (app_id, key)
);
CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at);
CREATE INDEX idempotency_keys_by_user ON idempotency_keys (app_id, user_id, key)
  WHERE user_id IS NOT NULL;


-- ADMINISTRATORS
-- Of everything that signs somebody in only a hash is stored; the secrets of TOTP are sealed.

-- The accounts of people who run Clarion.
CREATE TABLE administrators (
  id TEXT CONSTRAINT new_administrators_pkey PRIMARY KEY,
  username TEXT NOT NULL CONSTRAINT new_administrators_username_key UNIQUE,
  -- NULL until the set-up link is used.
  password_hash TEXT,
  -- For all apps; NULL if there are only roles for single apps.
  role TEXT,
  app_roles TEXT NOT NULL,
  networks TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  disabled_at BIGINT,
  password_changed_at BIGINT,
  version BIGINT NOT NULL
);

-- Set-up links by the id of the administrator. The first administrator is created with the link whose
-- id is empty; that row stays after its use and shows that the installation was set up.
CREATE TABLE admin_links (
  id TEXT PRIMARY KEY,
  token_hash BYTEA NOT NULL UNIQUE,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);

-- Who is signed in.
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

-- Browsers in which a second factor was given, and which need none for a while.
CREATE TABLE trusted_devices (
  token_hash BYTEA PRIMARY KEY,
  administrator_id TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX trusted_devices_by_administrator ON trusted_devices (administrator_id);
CREATE INDEX trusted_devices_by_expiry ON trusted_devices (expires_at);

-- The keys with which administrators call the management API.
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

-- The secrets of TOTP: one in use, and one that replaces it once a code of it was given (`state`).
CREATE TABLE totp_secrets (
  administrator_id TEXT NOT NULL,
  state TEXT NOT NULL,
  secret BYTEA NOT NULL,
  -- The latest time step whose code was accepted: a code works once.
  last_step BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (administrator_id, state)
);

-- Codes that replace a lost second factor, each of them once.
CREATE TABLE recovery_codes (
  administrator_id TEXT NOT NULL,
  code_hash BYTEA NOT NULL,
  salt BYTEA NOT NULL,
  PRIMARY KEY (administrator_id, code_hash)
);

-- Failed sign-ins by account, address or browser. Unknown user names are counted like known ones.
CREATE TABLE sign_in_attempts (
  key TEXT PRIMARY KEY,
  failures BIGINT NOT NULL,
  last_at BIGINT NOT NULL,
  locked_until BIGINT NOT NULL
);
CREATE INDEX sign_in_attempts_by_time ON sign_in_attempts (last_at);


-- AUDIT

-- Who did what, when, where and with which result. Each entry is signed in the commit of the change; a
-- moment later it gets its number and is linked to the one before it.
CREATE TABLE audit_entries (
  id TEXT PRIMARY KEY,
  -- Empty for what belongs to the installation.
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
-- One for each filter of the lists: of an app, and of the installation.
CREATE INDEX audit_entries_by_app ON audit_entries (app_id, created_at, id);
CREATE INDEX audit_entries_by_app_action ON audit_entries (app_id, action, created_at, id);
CREATE INDEX audit_entries_by_app_actor ON audit_entries (app_id, actor_id, created_at, id);
CREATE INDEX audit_entries_by_app_subject ON audit_entries (app_id, subject, created_at, id);
CREATE INDEX audit_entries_by_time ON audit_entries (created_at, id);
CREATE INDEX audit_entries_by_action ON audit_entries (action, created_at, id);
CREATE INDEX audit_entries_by_actor ON audit_entries (actor_id, created_at, id);

-- The last entry of the chain, and the last one that was pruned: one row.
CREATE TABLE audit_chain (
  id TEXT PRIMARY KEY,
  sequence BIGINT NOT NULL,
  link TEXT NOT NULL,
  pruned_sequence BIGINT NOT NULL,
  pruned_link TEXT NOT NULL,
  pruned_signature TEXT NOT NULL
);

-- The signing keys of entries from before the master key was replaced, sealed.
CREATE TABLE audit_keys (
  id TEXT PRIMARY KEY,
  sealed_key BYTEA NOT NULL,
  created_at BIGINT NOT NULL
);


-- PEOPLE

-- The users of an app. Triggers derive `user_attributes` and `inactive_users` from it (`0002`).
CREATE TABLE users (
  app_id TEXT NOT NULL,
  id TEXT NOT NULL,
  name TEXT,
  email TEXT,
  phone TEXT,
  language TEXT NOT NULL,
  timezone TEXT NOT NULL,
  status TEXT NOT NULL,
  tags TEXT NOT NULL,
  attributes TEXT NOT NULL,
  preferences TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  -- Grows with every change: an update of a row that has changed since it was read is tried again.
  version BIGINT NOT NULL,
  metadata TEXT NOT NULL DEFAULT '{}',
  consent TEXT NOT NULL DEFAULT '{}',
  -- The optional groups of fields (billing address, business, …). What is left out has its default.
  profile TEXT NOT NULL DEFAULT '{}',
  last_login_at BIGINT,
  last_seen_at BIGINT,
  -- A deleted user can be restored for a while.
  deleted_at BIGINT,
  -- The e-mail address without the difference of capitals.
  email_key TEXT,
  PRIMARY KEY (app_id, id)
);
-- Each node looks for users who became inactive, of all apps in one statement.
CREATE INDEX users_inactive ON users (updated_at, app_id, id) WHERE status = 'inactive';
CREATE UNIQUE INDEX users_by_email_key ON users (app_id, email_key)
  WHERE email_key IS NOT NULL AND deleted_at IS NULL;
-- One for each filter of the list. The audience "all" reads the index by status: pages of active users,
-- however many are inactive.
CREATE INDEX users_by_status ON users (app_id, status, id) WHERE deleted_at IS NULL;
CREATE INDEX users_by_language ON users (app_id, language, id) WHERE deleted_at IS NULL;
-- By the beginning of their name, without the difference of capitals A to Z.
CREATE INDEX users_by_name ON users (app_id, lower(name), id)
  WHERE name IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX users_by_creation ON users (app_id, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX users_by_last_seen ON users (app_id, last_seen_at, id)
  WHERE last_seen_at IS NOT NULL AND deleted_at IS NULL;
-- Deleted users of all apps, in the order in which they were deleted.
CREATE INDEX users_deleted ON users (deleted_at, app_id, id) WHERE deleted_at > 0;
CREATE INDEX users_by_timezone ON users (app_id, timezone, id) WHERE deleted_at IS NULL;

-- The tags of users once more, by tag. Written in the unit that writes the user.
CREATE TABLE user_tags (
  app_id TEXT NOT NULL,
  tag TEXT NOT NULL,
  user_id TEXT NOT NULL,
  PRIMARY KEY (app_id, tag, user_id)
);
CREATE INDEX user_tags_by_user ON user_tags (app_id, user_id, tag);

-- The topics that users follow.
CREATE TABLE follows (
  app_id TEXT NOT NULL,
  topic TEXT NOT NULL,
  user_id TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, topic, user_id)
);
CREATE INDEX follows_by_user ON follows (app_id, user_id, topic);

-- Named filters that select users.
CREATE TABLE segments (
  app_id TEXT NOT NULL,
  name TEXT NOT NULL,
  filter TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, name)
);

-- Erasures of users: each is a tombstone, which refuses late writes, and its receipt. It holds no
-- personal data: `user_hash` is keyed, and `subject` (what is still looked for, sealed) is removed at
-- the end. The status is running, then settling (late writes are looked for once more), then done.
CREATE TABLE erasures (
  app_id TEXT NOT NULL,
  id TEXT NOT NULL,
  user_hash BYTEA NOT NULL,
  subject BYTEA,
  cause TEXT NOT NULL,
  status TEXT NOT NULL,
  counts TEXT NOT NULL,
  -- When a node continues it: the one that works on it moves this ahead.
  due_at BIGINT NOT NULL,
  requested_at BIGINT NOT NULL,
  completed_at BIGINT,
  PRIMARY KEY (app_id, id)
);
CREATE INDEX erasures_by_user ON erasures (app_id, user_hash, id);
CREATE INDEX erasures_open ON erasures (due_at) WHERE status IN ('running', 'settling');

-- The key of these hashes for each app, sealed. It stays the same when the master key is replaced.
CREATE TABLE erasure_keys (
  app_id TEXT PRIMARY KEY,
  key BYTEA NOT NULL,
  created_at BIGINT NOT NULL
);


-- CATALOG

-- The categories that an app has in addition to the built-in ones.
CREATE TABLE categories (
  app_id TEXT NOT NULL,
  name TEXT NOT NULL,
  title TEXT NOT NULL,
  description TEXT,
  default_channels TEXT NOT NULL,
  user_can_disable INTEGER NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, name)
);

-- The notification types that an app has defined or changed; the built-in ones are in the program.
CREATE TABLE notification_types (
  app_id TEXT NOT NULL,
  type TEXT NOT NULL,
  definition TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  -- Its category, if that is one of the app's own: a category in use cannot be deleted.
  own_category TEXT,
  PRIMARY KEY (app_id, type)
);
CREATE INDEX notification_types_by_category ON notification_types (app_id, own_category)
  WHERE own_category IS NOT NULL;

-- All versions of each template.
CREATE TABLE templates (
  app_id TEXT NOT NULL,
  type TEXT NOT NULL,
  channel TEXT NOT NULL,
  language TEXT NOT NULL,
  version BIGINT NOT NULL,
  subject TEXT,
  body TEXT NOT NULL,
  variables TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, type, channel, language, version)
);


-- EVENTS

-- What an app has sent, and for whom.
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
  -- Users who are still to be decided for; a large audience is counted as it is expanded.
  remaining BIGINT NOT NULL,
  notification_count BIGINT NOT NULL,
  scheduled_at BIGINT,
  expires_at BIGINT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  -- The context of the request as W3C Trace Context has it; NULL unless traces are on.
  trace TEXT,
  PRIMARY KEY (app_id, id)
);
-- Only for the statuses that somebody lists. Events that go well are found by id and cost no index.
CREATE INDEX events_by_status ON events (app_id, status, id)
  WHERE status IN ('scheduled', 'failed', 'cancelled', 'expired', 'rate_limited', 'deduplicated');

-- Work that waits. A claim moves `due_at` to the end of its lease and raises `token`: if the worker
-- dies, the job is due again by itself, and a worker that wakes late holds an outdated token.
CREATE TABLE jobs (
  id TEXT PRIMARY KEY,
  -- The priority; dead letters are in lane -1, where nobody claims.
  lane INTEGER NOT NULL,
  due_at BIGINT NOT NULL,
  token BIGINT NOT NULL,
  tries INTEGER NOT NULL,
  kind TEXT NOT NULL,
  app_id TEXT NOT NULL,
  event_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  subject TEXT NOT NULL,
  -- Which workers run it: audiences and the deliveries of each channel have pools of their own.
  pool TEXT NOT NULL DEFAULT '',
  -- The node of the latest claim.
  node_id TEXT NOT NULL DEFAULT ''
);
CREATE INDEX jobs_of_person ON jobs (app_id, user_id) WHERE kind IN ('held', 'digest');
CREATE INDEX jobs_dead ON jobs (event_id) WHERE lane = -1;
-- Jobs are claimed for one app at a time: each pool, lane and app is one range of the index, so that
-- the queue of one app costs the others nothing.
CREATE INDEX jobs_due ON jobs (pool, lane, app_id, due_at);
-- Those that wait for no time (`NEVER`): pruned when what they wait for is gone.
CREATE INDEX jobs_without_time ON jobs (lane) WHERE due_at >= 4611686018427387904;

-- Which notification holds a dedupe key: claimed atomically. Ids begin with that of the user.
CREATE TABLE dedupes (
  app_id TEXT NOT NULL,
  id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  notification_id TEXT NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, id)
);
CREATE INDEX dedupes_expiring ON dedupes (expires_at);

-- How much of each limit is used: also claimed atomically.
CREATE TABLE limit_counts (
  app_id TEXT NOT NULL,
  id TEXT NOT NULL,
  used BIGINT NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, id)
);
CREATE INDEX limit_counts_expiring ON limit_counts (expires_at);


-- NOTIFICATIONS AND INBOX

-- One row for each user an event was for, also if it was dropped or folded: then it is not shown.
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
  -- The number in the inbox of the last change of what the user sees.
  sequence BIGINT NOT NULL,
  read_at BIGINT,
  dismissed_at BIGINT,
  expires_at BIGINT,
  created_at BIGINT NOT NULL,
  -- A notification that is read again after it was marked unread counts once.
  first_read_at BIGINT,
  clicked_at BIGINT,
  -- The deliveries that ended when it was decided: given to the inbox, dropped, folded. They never
  -- change. As JSON: channel, status, reason and rule of each. Those of other channels are rows.
  ended_deliveries TEXT,
  PRIMARY KEY (app_id, user_id, id)
);
-- In the order of time: for analytics and retention.
CREATE UNIQUE INDEX notifications_by_id ON notifications (id);
CREATE INDEX notifications_by_event ON notifications (app_id, event_id, id);
CREATE INDEX notifications_shown ON notifications (app_id, user_id, id)
  WHERE is_shown = 1 AND dismissed_at IS NULL;
CREATE INDEX notifications_unread ON notifications (app_id, user_id, id)
  WHERE is_shown = 1 AND dismissed_at IS NULL AND read_at IS NULL;
-- What is shown has a number. The condition is not `is_shown = 1`: before it has statistics, PostgreSQL
-- would take this index for a page of the inbox, and sort all of it.
CREATE INDEX notifications_by_sequence ON notifications (app_id, user_id, sequence)
  WHERE sequence > 0;
-- Pages of a category. A notification is in one of the two, so it costs one index.
CREATE INDEX notifications_unread_by_category ON notifications (app_id, user_id, category, id)
  WHERE category > '' AND is_shown = 1 AND dismissed_at IS NULL AND read_at IS NULL;
CREATE INDEX notifications_read_by_category ON notifications (app_id, user_id, category, id)
  WHERE category > '' AND is_shown = 1 AND dismissed_at IS NULL AND read_at IS NOT NULL;
-- For analytics. What is new is found by its id, which begins with the time; what happens later is
-- found by these, and by those of `deliveries` and `messages`.
CREATE INDEX notifications_first_read ON notifications (first_read_at) WHERE first_read_at > 0;
CREATE INDEX notifications_dismissed ON notifications (dismissed_at) WHERE dismissed_at > 0;
CREATE INDEX notifications_clicked ON notifications (clicked_at) WHERE clicked_at > 0;

-- The unread count and the last number of each inbox: reading them costs the same, however much is in
-- the inbox.
CREATE TABLE inboxes (
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  unread_count BIGINT NOT NULL,
  sequence BIGINT NOT NULL,
  PRIMARY KEY (app_id, user_id)
);

-- What was decided for a channel of a notification, and the result: on which there was or is work.
-- A delivery that ended when it was decided is part of the notification.
CREATE TABLE deliveries (
  notification_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT NOT NULL,
  rule TEXT NOT NULL,
  until BIGINT,
  -- Oldest first, as JSON.
  past_decisions TEXT NOT NULL,
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
CREATE INDEX deliveries_of_digest ON deliveries (app_id, user_id, digest, notification_id)
  WHERE status = 'collected';
-- For analytics.
CREATE INDEX deliveries_sent ON deliveries (sent_at) WHERE sent_at > 0;
CREATE INDEX deliveries_delivered ON deliveries (delivered_at) WHERE delivered_at > 0;
CREATE INDEX deliveries_unsuccessful ON deliveries (decided_at)
  WHERE decided_at > 0 AND status IN ('failed', 'expired', 'cancelled');
-- Failed deliveries of an app, newest first: they are few, and are what somebody looks for.
CREATE INDEX deliveries_failed ON deliveries (app_id, notification_id, user_id)
  WHERE status = 'failed';

-- Each attempt to send a delivery over its channel.
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
  -- After a failure, another provider may be tried.
  provider TEXT,
  PRIMARY KEY (notification_id, channel, number, device_id)
);


-- CHANNELS

-- How an app sends over a channel. `secrets` is a sealed JSON object; the settings are plain.
CREATE TABLE providers (
  app_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  settings TEXT NOT NULL,
  secrets BYTEA NOT NULL,
  position INTEGER NOT NULL,
  is_active INTEGER NOT NULL,
  timeout_s INTEGER NOT NULL,
  concurrency INTEGER NOT NULL,
  daily_cap INTEGER,
  is_sandbox INTEGER NOT NULL,
  disabled_reason TEXT,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, channel, name)
);


-- PUSH
-- Everything about a device leads with its id, so that the tables can be split by it.

-- The devices that connect here or are reached by another push service.
CREATE TABLE devices (
  id TEXT PRIMARY KEY,
  app_id TEXT NOT NULL,
  token_hash BYTEA NOT NULL,
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
  invalidation_reason TEXT,
  -- The token or subscription of a device that another push service reaches, sealed.
  address BYTEA,
  -- What the user has set for the device, as JSON.
  preferences TEXT NOT NULL DEFAULT '{}',
  -- When the newest connection was opened, on any node, by the clock that all nodes share: nodes that
  -- cannot reach each other find there that the device has a newer connection elsewhere.
  connected_at BIGINT
);
-- A token is unique within its app: an app neither finds nor takes the tokens of another. The token
-- comes first, because a device that connects names no app.
CREATE UNIQUE INDEX devices_by_token ON devices (token_hash, app_id);
CREATE INDEX devices_by_app ON devices (app_id, id);
CREATE INDEX devices_by_user ON devices (app_id, user_id, id) WHERE user_id IS NOT NULL;
-- Invalid devices are kept for a while, so that a provider is answered with the reason.
CREATE INDEX devices_ended ON devices (invalidated_at) WHERE invalidated_at > 0;
-- One for each filter of the list.
CREATE INDEX devices_by_platform ON devices (app_id, platform, id);
CREATE INDEX devices_invalid ON devices (app_id, id) WHERE invalidated_at IS NOT NULL;

-- The users a device had before: messages to it with a sequence after `since`, up to `until`, were sent
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

-- Messages to devices: history, and what waits for a device, in one table. A message waits while it is
-- pending or queued.
CREATE TABLE messages (
  device_id TEXT NOT NULL,
  -- May be the provider's own.
  id TEXT NOT NULL,
  app_id TEXT NOT NULL,
  -- The order in which this installation has accepted messages.
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
  -- The notification it is part of, if any: its acknowledgement or expiry changes the delivery.
  notification_id TEXT,
  -- The context of the step that stored it, like that of an event.
  trace TEXT,
  -- Most ids are made when a message is accepted, in their order: the messages of a moment are
  -- neighbours in the index, whatever devices they are for. With the device first, each would write
  -- a page of its own to the log and to the file.
  PRIMARY KEY (id, device_id)
);
CREATE INDEX messages_collapsing ON messages (device_id, collapse_id, sequence)
  WHERE status IN ('pending', 'queued') AND collapse_id IS NOT NULL;
CREATE INDEX messages_expiring ON messages (expires_at) WHERE status IN ('pending', 'queued');
CREATE INDEX messages_by_app ON messages (app_id, sequence);
-- The status of a push delivery depends on all its messages. Other messages are not in the index.
CREATE INDEX messages_by_notification ON messages (notification_id)
  WHERE notification_id IS NOT NULL;
-- For analytics.
CREATE INDEX messages_ended ON messages (updated_at)
  WHERE updated_at > 0 AND status IN ('delivered', 'failed', 'expired');
-- A message is in one of the two: a new one writes a page of one index by device, and not of two.
CREATE INDEX messages_waiting ON messages (device_id, priority DESC, sequence)
  WHERE status IN ('pending', 'queued');
CREATE INDEX messages_past ON messages (device_id, sequence)
  WHERE NOT status IN ('pending', 'queued');

-- Tokens that are no longer valid, for providers to stop using. Outlives the devices.
CREATE TABLE feedback (
  app_id TEXT NOT NULL,
  invalidated_at BIGINT NOT NULL,
  token_hash BYTEA NOT NULL,
  reason TEXT NOT NULL,
  PRIMARY KEY (app_id, invalidated_at, token_hash)
);
-- Pruned for all apps in one statement.
CREATE INDEX feedback_by_time ON feedback (invalidated_at) WHERE invalidated_at > 0;
CREATE INDEX feedback_by_token ON feedback (app_id, token_hash);

-- The topics that devices subscribe to and users follow, and the broadcast channels of APNs.
CREATE TABLE topics (
  app_id TEXT NOT NULL,
  topic TEXT NOT NULL,
  is_broadcast_channel INTEGER NOT NULL,
  -- How many messages wait for devices that are offline: all (-1), the last one (1) or none (0).
  storage_policy INTEGER NOT NULL,
  last_sequence BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  deleted_at BIGINT,
  -- Users subscribe their devices to open topics only. Broadcast channels are open: their ids cannot be
  -- guessed, so users only know those that the app gave them.
  is_open INTEGER NOT NULL DEFAULT 0,
  CONSTRAINT device_topics_pkey PRIMARY KEY (app_id, topic)
);
-- Deleted topics are kept for a while, then pruned for all apps in one statement.
CREATE INDEX device_topics_deleted ON topics (deleted_at) WHERE deleted_at > 0;
CREATE INDEX device_topics_by_kind ON topics (app_id, is_broadcast_channel, topic)
  WHERE deleted_at IS NULL;

-- Messages to topics, each stored once for all subscribers.
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

-- Which devices subscribe to which topics.
CREATE TABLE subscriptions (
  device_id TEXT NOT NULL,
  topic TEXT NOT NULL,
  app_id TEXT NOT NULL,
  -- The sequence up to which the device has acknowledged the topic.
  cursor BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  -- The last sequence of the topic when the device subscribed: it gets the messages after it.
  since_sequence BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (device_id, topic)
);
CREATE INDEX subscriptions_by_topic ON subscriptions (app_id, topic, device_id);

-- The Web Push endpoints of devices: URLs whose secret part is stored as its hash alone.
CREATE TABLE push_endpoints (
  device_id TEXT NOT NULL,
  id TEXT NOT NULL,
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  capability_hash BYTEA NOT NULL,
  vapid_key TEXT,
  label TEXT,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (device_id, id)
);
CREATE UNIQUE INDEX push_endpoints_by_capability ON push_endpoints (capability_hash);
-- For the deletion of an app.
CREATE INDEX push_endpoints_by_app ON push_endpoints (app_id, device_id, id);


-- ANALYTICS

-- How much happened in each minute, hour and day. Counted from the other tables in the background, so
-- that a query costs the same however many notifications there are.
CREATE TABLE analytics (
  app_id TEXT NOT NULL,
  metric TEXT NOT NULL,
  step TEXT NOT NULL,
  -- The beginning of the minute, hour or day.
  at BIGINT NOT NULL,
  -- Empty if the metric does not have it.
  type TEXT NOT NULL,
  channel TEXT NOT NULL,
  platform TEXT NOT NULL,
  -- The reason, outcome or bucket, according to the metric.
  label TEXT NOT NULL,
  value BIGINT NOT NULL,
  PRIMARY KEY (app_id, metric, step, at, type, channel, platform, label)
);
CREATE INDEX analytics_by_time ON analytics (step, at);

-- How far everything is counted: one row. `turn` makes sure that nothing is added twice.
CREATE TABLE analytics_progress (
  id INTEGER PRIMARY KEY,
  turn BIGINT NOT NULL,
  counted_until BIGINT NOT NULL,
  settled_until BIGINT NOT NULL
);
