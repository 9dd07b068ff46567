"""The results of a run: its folder, and every file in it."""
