"""Benchmark scripts and their shared helpers."""
