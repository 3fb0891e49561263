-- Jobs are claimed for one app at a time, from the pool of workers that runs them: audiences and
-- the deliveries of each channel have pools of their own. Each pool, lane and app is one range of
-- the index, so that the queue of one app costs the others nothing.

ALTER TABLE jobs ADD COLUMN pool TEXT NOT NULL DEFAULT '';
UPDATE jobs SET pool = CASE
  WHEN kind = 'expand' THEN 'audience'
  WHEN subject LIKE 'push/%' THEN 'push'
  WHEN subject LIKE 'email/%' THEN 'email'
  WHEN subject LIKE 'sms/%' THEN 'sms'
  WHEN subject LIKE 'webhook/%' THEN 'webhook'
  WHEN subject LIKE 'stub/%' THEN 'stub'
  ELSE '' END
WHERE kind IN ('expand', 'deliver');
DROP INDEX jobs_due;
CREATE INDEX jobs_due ON jobs (pool, lane, app_id, due_at);
-- Those that wait for no time: pruned when what they wait for is gone.
CREATE INDEX jobs_without_time ON jobs (lane) WHERE due_at >= 4611686018427387904;
