"""Rows of replicas and groups that a session is fed and returns, and its warnings."""
