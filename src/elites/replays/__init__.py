"""Watching elites: episodes run again and drawn, without a display or a GPU."""
