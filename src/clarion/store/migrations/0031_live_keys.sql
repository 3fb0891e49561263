-- The live keys of an app are counted when one more is created; those that were revoked may be many.
CREATE INDEX live_api_keys ON api_keys (app_id, expires_at) WHERE revoked_at IS NULL;
