"""Bisects versions: indexes, environments, the search, and its record. Never imports torch: each version runs elsewhere."""
