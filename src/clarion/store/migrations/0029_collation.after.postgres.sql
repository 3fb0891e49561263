-- Texts are compared by their code points, as in SQLite, whatever the locale of the database is:
-- pages, ranges and the highest keys depend on it. A locale for people sorts U+FFFF first, and then
-- lists were empty, and an erasure skipped events.
--
-- The rows stay as they are; the indexes are built again. So are views and triggers: a column that
-- one of them names cannot be altered.

DO $$
DECLARE
  each RECORD;
  definitions TEXT[] := '{}';
BEGIN
  FOR each IN SELECT viewname, definition FROM pg_views WHERE schemaname = current_schema() LOOP
    definitions := definitions || format('CREATE VIEW %I AS %s', each.viewname, each.definition);
    EXECUTE format('DROP VIEW %I', each.viewname);
  END LOOP;
  FOR each IN
    SELECT t.tgname, c.relname, pg_get_triggerdef(t.oid) AS definition
    FROM pg_trigger t
    JOIN pg_class c ON c.oid = t.tgrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = current_schema()
    WHERE NOT t.tgisinternal
  LOOP
    definitions := definitions || each.definition;
    EXECUTE format('DROP TRIGGER %I ON %I', each.tgname, each.relname);
  END LOOP;
  FOR each IN
    SELECT c.relname,
      string_agg(format('ALTER COLUMN %I TYPE TEXT COLLATE "C"', a.attname), ', ') AS changes
    FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r'
    JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = current_schema()
    JOIN pg_collation l ON l.oid = a.attcollation AND l.collname <> 'C'
    WHERE a.atttypid = 'text'::regtype AND a.attnum > 0 AND NOT a.attisdropped
      AND c.relname <> 'migrations'
    GROUP BY c.relname ORDER BY c.relname
  LOOP
    EXECUTE format('ALTER TABLE %I %s', each.relname, each.changes);
  END LOOP;
  FOR i IN 1 .. coalesce(array_length(definitions, 1), 0) LOOP
    EXECUTE definitions[i];
  END LOOP;
END $$;
