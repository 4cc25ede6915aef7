"""Calls that fail while a program is built: messages, and programs that stay as they were."""
