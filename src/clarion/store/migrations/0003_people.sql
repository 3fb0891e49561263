-- People, what they follow, and the types and templates of what they hear.

-- `version` grows with every change: who changes a row that was changed meanwhile reads it again.
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
  version BIGINT NOT NULL,
  PRIMARY KEY (app_id, id)
);
CREATE INDEX users_by_email ON users (app_id, email) WHERE email IS NOT NULL;
-- The audience "all": pages of active people however many are not.
CREATE INDEX users_active ON users (app_id, id) WHERE status = 'active';

CREATE TABLE follows (
  app_id TEXT NOT NULL,
  topic TEXT NOT NULL,
  user_id TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, topic, user_id)
);
CREATE INDEX follows_by_user ON follows (app_id, user_id, topic);

-- Only what an app has said itself; the ready-made types are in the program.
CREATE TABLE notification_types (
  app_id TEXT NOT NULL,
  type TEXT NOT NULL,
  definition TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, type)
);

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
