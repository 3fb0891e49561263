"""Runs schemas and templates of apps in processes that can be killed."""
