"""Hostile files and options. Each case must end in success, or in one line and a status other than 0."""
