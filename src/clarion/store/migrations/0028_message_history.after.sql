-- A message is in one of two indexes by device: those that wait, and those that have ended. Each
-- index by device has its page for nearly every message that is stored, which is written to the log
-- and to the file. A new message now has one such page, and gets the other when it ends.
DROP INDEX messages_waiting;
CREATE INDEX messages_waiting ON messages (device_id, priority DESC, sequence)
  WHERE status IN ('pending', 'queued');
DROP INDEX messages_by_device;
CREATE INDEX messages_past ON messages (device_id, sequence)
  WHERE NOT status IN ('pending', 'queued');
