"""Notifications, deliveries and attempts in SQL."""
