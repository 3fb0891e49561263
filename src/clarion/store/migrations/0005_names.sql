-- Columns take the names that the program and its documentation use.

ALTER TABLE deliveries RENAME COLUMN story TO past_decisions;
ALTER TABLE device_topics RENAME COLUMN is_channel TO is_broadcast_channel;
ALTER TABLE device_topics RENAME COLUMN keeps TO storage_policy;
