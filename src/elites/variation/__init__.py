"""Operators that make offspring from parents."""
