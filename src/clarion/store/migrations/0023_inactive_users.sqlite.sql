-- Users who are not active, so that segments are counted without reading the users themselves.

CREATE TABLE inactive_users (
  app_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  PRIMARY KEY (app_id, user_id)
) WITHOUT ROWID;
INSERT INTO inactive_users (app_id, user_id)
SELECT app_id, id FROM users WHERE status <> 'active' OR deleted_at IS NOT NULL;

-- Triggers, because many statements write users and none may forget this.
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
