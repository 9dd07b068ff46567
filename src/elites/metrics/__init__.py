"""Metrics that summarise an archive: functions from plain arrays to numbers."""
