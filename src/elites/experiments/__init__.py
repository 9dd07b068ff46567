"""Runs: what they are given, how they are driven, and what they leave behind."""
