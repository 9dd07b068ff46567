"""Kills at random moments and at every rename. What goes on afterwards must end with the same bytes."""
