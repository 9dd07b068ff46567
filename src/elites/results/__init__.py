"""What a run leaves behind: its folder, and every file in it."""
