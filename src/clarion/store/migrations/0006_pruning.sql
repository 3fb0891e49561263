-- Feedback and deleted topics are kept for a while and then deleted, of all apps in one statement.
-- Each condition is one that only the statement for it has, so that no other takes these indexes.

CREATE INDEX feedback_by_time ON feedback (invalidated_at) WHERE invalidated_at > 0;
CREATE INDEX device_topics_deleted ON device_topics (deleted_at) WHERE deleted_at > 0;
