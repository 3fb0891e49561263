-- When the newest connection of a device was opened, on any node, by the clock that all nodes share. Nodes
-- that do not hear each other find there that a device has a newer connection elsewhere.
ALTER TABLE devices ADD COLUMN connected_at BIGINT;
