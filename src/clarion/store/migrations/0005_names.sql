-- Columns take the names that the program and its documentation use.

ALTER TABLE deliveries RENAME COLUMN story TO past_decisions;
ALTER TABLE device_topics RENAME COLUMN is_channel TO is_broadcast_channel;
ALTER TABLE device_topics RENAME COLUMN keeps TO storage_policy;

-- And so do the reasons and rules that stand in rows.
UPDATE deliveries SET
  rule = CASE rule WHEN 'nothing_against_it' THEN 'default' WHEN 'person' THEN 'user' ELSE rule END,
  reason = CASE reason WHEN 'nothing_against_it' THEN 'allowed' WHEN 'always_heard' THEN 'mandatory'
    WHEN 'tries_exhausted' THEN 'attempts_exhausted' ELSE reason END,
  past_decisions = REPLACE(REPLACE(REPLACE(REPLACE(REPLACE(past_decisions,
    '"rule":"nothing_against_it"', '"rule":"default"'),
    '"rule":"person"', '"rule":"user"'),
    '"reason":"nothing_against_it"', '"reason":"allowed"'),
    '"reason":"always_heard"', '"reason":"mandatory"'),
    '"reason":"tries_exhausted"', '"reason":"attempts_exhausted"');
