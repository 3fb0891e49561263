-- What SQLite and PostgreSQL write differently: two tables that triggers keep up to date from `users`.
-- Triggers, because many statements write users and none may forget this.


-- PEOPLE

-- The attributes of users that a filter can compare, by value. The type of the value is in the term:
-- `text.plan`, `number.age`, `flag.is_new`. A text has the number 0, all else the value ''.
CREATE TABLE user_attributes (
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  term TEXT NOT NULL,
  value TEXT NOT NULL,
  number REAL NOT NULL,
  PRIMARY KEY (app_id, user_id, term)
) WITHOUT ROWID;
CREATE INDEX user_attributes_by_value ON user_attributes (app_id, term, value, number, user_id);

-- What `user_attributes` must hold; `evaluation.py` says the same in Python. A text is cut one character
-- after the longest text of a filter, which decides every comparison. PostgreSQL cannot hold zero
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

-- Of several writes of one user in a batch the attributes of the last one stay.
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

-- Users who are not active, so that segments are counted without reading the users themselves.
CREATE TABLE inactive_users (
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  PRIMARY KEY (app_id, user_id)
) WITHOUT ROWID;

CREATE TRIGGER inactive_users_added AFTER INSERT ON users
WHEN NEW.status <> 'active' OR NEW.deleted_at IS NOT NULL BEGIN
  INSERT INTO inactive_users (app_id, user_id) VALUES (NEW.app_id, NEW.id) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER inactive_users_changed AFTER UPDATE OF status, deleted_at ON users
WHEN (NEW.status <> 'active' OR NEW.deleted_at IS NOT NULL)
  <> (OLD.status <> 'active' OR OLD.deleted_at IS NOT NULL) BEGIN
  DELETE FROM inactive_users WHERE app_id = OLD.app_id AND user_id = OLD.id;
  INSERT INTO inactive_users (app_id, user_id)
  SELECT NEW.app_id, NEW.id WHERE NEW.status <> 'active' OR NEW.deleted_at IS NOT NULL;
END;
CREATE TRIGGER inactive_users_removed AFTER DELETE ON users BEGIN
  DELETE FROM inactive_users WHERE app_id = OLD.app_id AND user_id = OLD.id;
END;
