"""Helpers of several benchmarks."""
