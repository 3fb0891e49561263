-- Failed deliveries of an app, newest first: they are few, and are what somebody looks for.

CREATE INDEX deliveries_failed ON deliveries (app_id, notification_id, user_id)
  WHERE status = 'failed';
