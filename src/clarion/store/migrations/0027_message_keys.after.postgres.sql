-- The key of a message begins with its id. Most ids are made when a message is accepted, in their order:
-- the messages of a moment are neighbours in the index, whatever devices they are for.

CREATE UNIQUE INDEX messages_by_id ON messages (id, device_id);
ALTER TABLE messages DROP CONSTRAINT messages_pkey;
ALTER TABLE messages ADD CONSTRAINT messages_pkey PRIMARY KEY USING INDEX messages_by_id;
