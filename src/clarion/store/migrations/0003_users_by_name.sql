-- Finds users by the beginning of their name, without the difference of capitals A to Z.
CREATE INDEX users_by_name ON users (app_id, lower(name), id)
  WHERE name IS NOT NULL AND deleted_at IS NULL;
