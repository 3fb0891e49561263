-- Segments, and the attributes of users by their values.

CREATE TABLE segments (
  app_id TEXT NOT NULL,
  name TEXT NOT NULL,
  filter TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (app_id, name)
);

-- The attributes of users once more, those that a filter can compare. The type of the value is in
-- the term: `text.plan`, `number.age`, `flag.is_new`. A text has the number 0, all else the value ''.
CREATE TABLE user_attributes (
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  term TEXT NOT NULL,
  value TEXT NOT NULL,
  number REAL NOT NULL,
  PRIMARY KEY (app_id, user_id, term)
) WITHOUT ROWID;
CREATE INDEX user_attributes_by_value ON user_attributes (app_id, term, value, number, user_id);
CREATE INDEX users_by_timezone ON users (app_id, timezone, id) WHERE deleted_at IS NULL;

-- What the table above must hold; `evaluation.py` says the same in Python. A text is longer by one
-- character than any text of a filter, which decides every comparison. PostgreSQL cannot hold zero
-- characters; the replacement has the same length, so that it is JSON still.
CREATE VIEW attributes_of_users AS
SELECT users.app_id, users.id AS user_id,
  CASE each.type WHEN 'text' THEN 'text.' WHEN 'true' THEN 'flag.' WHEN 'false' THEN 'flag.'
    ELSE 'number.' END || each.key AS term,
  CASE each.type WHEN 'text' THEN substr(each.atom, 1, 257) ELSE '' END AS value,
  CASE each.type WHEN 'text' THEN 0.0 ELSE CAST(each.atom AS REAL) END AS number
FROM users, json_each(replace(users.attributes, '\u0000', '\ufffd')) AS each
WHERE length(each.key) <= 100 AND (each.type IN ('text', 'true', 'false')
  OR (each.type IN ('integer', 'real') AND abs(CAST(each.atom AS REAL)) < 1e300));
INSERT INTO user_attributes (app_id, user_id, term, value, number)
SELECT app_id, user_id, term, value, number FROM attributes_of_users;

-- Triggers, because many statements write users and none may forget this. Of several writes of one
-- user in a batch the attributes of the last one stay.
CREATE TRIGGER user_attributes_added AFTER INSERT ON users WHEN NEW.attributes <> '{}' BEGIN
  INSERT INTO user_attributes (app_id, user_id, term, value, number)
  SELECT app_id, user_id, term, value, number FROM attributes_of_users
  WHERE app_id = NEW.app_id AND user_id = NEW.id;
END;
CREATE TRIGGER user_attributes_changed AFTER UPDATE OF attributes ON users
WHEN NEW.attributes <> OLD.attributes BEGIN
  DELETE FROM user_attributes WHERE app_id = OLD.app_id AND user_id = OLD.id;
  INSERT INTO user_attributes (app_id, user_id, term, value, number)
  SELECT app_id, user_id, term, value, number FROM attributes_of_users
  WHERE app_id = NEW.app_id AND user_id = NEW.id;
END;
CREATE TRIGGER user_attributes_removed AFTER DELETE ON users BEGIN
  DELETE FROM user_attributes WHERE app_id = OLD.app_id AND user_id = OLD.id;
END;
