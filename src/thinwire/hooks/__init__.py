"""Hooks: thin adaptors that put the engine below a training framework."""
