-- The context of the request that sent an event, and of the step that stored a message to a device,
-- as W3C Trace Context has it. NULL unless traces are on.

ALTER TABLE events ADD COLUMN trace TEXT;
ALTER TABLE messages ADD COLUMN trace TEXT;
