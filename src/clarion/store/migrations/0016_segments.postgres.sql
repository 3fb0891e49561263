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
-- Texts are compared by their code points, as in SQLite, whatever the locale of the database is.
CREATE TABLE user_attributes (
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  term TEXT NOT NULL,
  value TEXT COLLATE "C" NOT NULL,
  number DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (app_id, user_id, term)
);
CREATE INDEX user_attributes_by_value ON user_attributes (app_id, term, value, number, user_id);
CREATE INDEX users_by_timezone ON users (app_id, timezone, id) WHERE deleted_at IS NULL;

-- What the table above must hold; `evaluation.py` says the same in Python. A text is longer by one
-- character than any text of a filter, which decides every comparison. Zero characters cannot be
-- stored; the replacement has the same length, so that it is JSON still.
CREATE VIEW attributes_of_users AS
SELECT users.app_id, users.id AS user_id,
  CASE read.type WHEN 'string' THEN 'text.' WHEN 'boolean' THEN 'flag.' ELSE 'number.' END
    || each.key AS term,
  CASE read.type WHEN 'string' THEN left(each.value #>> '{}', 257) ELSE '' END AS value,
  CASE read.type WHEN 'string' THEN 0 ELSE read.number END AS number
FROM users
CROSS JOIN LATERAL json_each(replace(users.attributes, '\u0000', '\ufffd')::json)
  AS each (key, value)
CROSS JOIN LATERAL (SELECT json_typeof(each.value) AS type,
  CASE WHEN json_typeof(each.value) = 'boolean' THEN (each.value::text)::boolean::int
    -- A cast of more digits would fail.
    WHEN json_typeof(each.value) = 'number' AND length(ltrim(each.value::text, '-')) <= 300
    THEN (each.value::text)::double precision END AS number) AS read
WHERE length(each.key) <= 100 AND (read.type = 'string' OR abs(read.number) < 1e300);
INSERT INTO user_attributes (app_id, user_id, term, value, number)
SELECT app_id, user_id, term, value, number FROM attributes_of_users;

-- Triggers, because many statements write users and none may forget this. Of several writes of one
-- user in a batch the attributes of the last one stay.
CREATE FUNCTION write_user_attributes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    DELETE FROM user_attributes WHERE app_id = OLD.app_id AND user_id = OLD.id;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO user_attributes (app_id, user_id, term, value, number)
    SELECT app_id, user_id, term, value, number FROM attributes_of_users
    WHERE app_id = NEW.app_id AND user_id = NEW.id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER user_attributes_added AFTER INSERT ON users FOR EACH ROW
WHEN (NEW.attributes <> '{}') EXECUTE FUNCTION write_user_attributes();
CREATE TRIGGER user_attributes_changed AFTER UPDATE OF attributes ON users FOR EACH ROW
WHEN (NEW.attributes <> OLD.attributes) EXECUTE FUNCTION write_user_attributes();
CREATE TRIGGER user_attributes_removed AFTER DELETE ON users FOR EACH ROW
EXECUTE FUNCTION write_user_attributes();
