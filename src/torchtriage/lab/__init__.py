"""Starts stages, runs trials within limits, and keeps the journal."""
