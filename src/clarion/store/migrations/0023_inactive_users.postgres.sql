-- Users who are not active, so that segments are counted without reading the users themselves.

CREATE TABLE inactive_users (
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  PRIMARY KEY (app_id, user_id)
);
INSERT INTO inactive_users (app_id, user_id)
SELECT app_id, id FROM users WHERE status <> 'active' OR deleted_at IS NOT NULL;

-- Triggers, because many statements write users and none may forget this.
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
