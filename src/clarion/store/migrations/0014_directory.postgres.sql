-- The directory: optional fields of users, and an index for each filter of the lists.

ALTER TABLE users ADD COLUMN metadata TEXT NOT NULL DEFAULT '{}';
ALTER TABLE users ADD COLUMN consent TEXT NOT NULL DEFAULT '{}';
-- The optional groups of fields (billing address, business, …). What is left out has its default.
ALTER TABLE users ADD COLUMN profile TEXT NOT NULL DEFAULT '{}';
ALTER TABLE users ADD COLUMN last_login_at BIGINT;
ALTER TABLE users ADD COLUMN last_seen_at BIGINT;
ALTER TABLE users ADD COLUMN deleted_at BIGINT;
-- The e-mail address without the difference of capitals; unique among the living users of an app.
ALTER TABLE users ADD COLUMN email_key TEXT;

-- An address was not unique before. The oldest user who has it gets the key; the others have none
-- until their address is changed, or free when they are written again. Addresses that are not
-- ASCII get theirs likewise: SQL does not fold them as the program does.
UPDATE users SET email_key = lower(email COLLATE "C") WHERE (app_id, id) IN (
  SELECT app_id, id FROM (
    SELECT app_id, id, ROW_NUMBER() OVER (
      PARTITION BY app_id, lower(email COLLATE "C") ORDER BY created_at, id) AS place
    FROM users WHERE octet_length(email) = length(email)) AS ranked
  WHERE place = 1);

DROP INDEX users_by_email;
DROP INDEX users_active;
CREATE UNIQUE INDEX users_by_email_key ON users (app_id, email_key)
  WHERE email_key IS NOT NULL AND deleted_at IS NULL;
-- Also the audience "all": pages of active users, however many are not.
CREATE INDEX users_by_status ON users (app_id, status, id) WHERE deleted_at IS NULL;
CREATE INDEX users_by_language ON users (app_id, language, id) WHERE deleted_at IS NULL;
CREATE INDEX users_by_creation ON users (app_id, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX users_by_last_seen ON users (app_id, last_seen_at, id)
  WHERE last_seen_at IS NOT NULL AND deleted_at IS NULL;

-- Likewise for the list of devices.
CREATE INDEX devices_by_platform ON devices (app_id, platform, id);
CREATE INDEX devices_invalid ON devices (app_id, id) WHERE invalidated_at IS NOT NULL;

-- The tags of users once more, by tag. Written in the unit that writes the user.
CREATE TABLE user_tags (
  app_id TEXT NOT NULL,
  tag TEXT NOT NULL,
  user_id TEXT NOT NULL,
  PRIMARY KEY (app_id, tag, user_id)
);
CREATE INDEX user_tags_by_user ON user_tags (app_id, user_id, tag);
INSERT INTO user_tags (app_id, tag, user_id)
SELECT DISTINCT users.app_id, each.value, users.id
FROM users, json_array_elements_text(users.tags::json) AS each (value);
