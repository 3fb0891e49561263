-- What SQLite and PostgreSQL write differently: how texts are compared, and two tables that triggers keep
-- up to date from `users`. Triggers, because many statements write users and none may forget this.


-- PEOPLE

-- The attributes of users that a filter can compare, by value. The type of the value is in the term:
-- `text.plan`, `number.age`, `flag.is_new`. A text has the number 0, all else the value ''.
CREATE TABLE user_attributes (
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  term TEXT NOT NULL,
  value TEXT NOT NULL,
  number DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (app_id, user_id, term)
);
CREATE INDEX user_attributes_by_value ON user_attributes (app_id, term, value, number, user_id);

-- Users who are not active, so that segments are counted without reading the users themselves.
CREATE TABLE inactive_users (
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  PRIMARY KEY (app_id, user_id)
);


-- COLLATION
-- Texts are compared by their code points, as in SQLite, whatever the locale of the database is: pages,
-- ranges and the highest keys depend on it. A locale for people sorts U+FFFF first, and then lists would
-- be empty, and an erasure would skip events. A text column of a later migration must say
-- `COLLATE "C"` itself. This comes before the view and the triggers: a column that one of them names
-- cannot be altered.

DO $$
DECLARE
  each RECORD;
BEGIN
  FOR each IN
    SELECT c.relname,
      string_agg(format('ALTER COLUMN %I TYPE TEXT COLLATE "C"', a.attname), ', ') AS changes
    FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r'
    JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = current_schema()
    WHERE a.atttypid = 'text'::regtype AND a.attnum > 0 AND c.relname <> 'migrations'
    GROUP BY c.relname ORDER BY c.relname
  LOOP
    EXECUTE format('ALTER TABLE %I %s', each.relname, each.changes);
  END LOOP;
END $$;


-- TRIGGERS

-- What `user_attributes` must hold; `evaluation.py` says the same in Python. A text is cut one character
-- after the longest text of a filter, which decides every comparison. Zero characters cannot be stored;
-- the replacement has the same length, so that it is JSON still.
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

-- Of several writes of one user in a batch the attributes of the last one stay.
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

CREATE FUNCTION write_inactive_users() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    DELETE FROM inactive_users WHERE app_id = OLD.app_id AND user_id = OLD.id;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    INSERT INTO inactive_users (app_id, user_id)
    SELECT NEW.app_id, NEW.id WHERE NEW.status <> 'active' OR NEW.deleted_at IS NOT NULL
    ON CONFLICT DO NOTHING;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER inactive_users_added AFTER INSERT ON users FOR EACH ROW
WHEN (NEW.status <> 'active' OR NEW.deleted_at IS NOT NULL)
EXECUTE FUNCTION write_inactive_users();
CREATE TRIGGER inactive_users_changed AFTER UPDATE OF status, deleted_at ON users FOR EACH ROW
WHEN ((NEW.status <> 'active' OR NEW.deleted_at IS NOT NULL)
  <> (OLD.status <> 'active' OR OLD.deleted_at IS NOT NULL))
EXECUTE FUNCTION write_inactive_users();
CREATE TRIGGER inactive_users_removed AFTER DELETE ON users FOR EACH ROW
EXECUTE FUNCTION write_inactive_users();
