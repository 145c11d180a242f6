"""Routes: how payloads travel and merge."""
