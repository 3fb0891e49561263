"""Events, jobs, notifications and deliveries in SQL."""
