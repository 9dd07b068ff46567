"""Runs: their configuration, execution and results."""
