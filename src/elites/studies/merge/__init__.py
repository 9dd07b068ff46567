"""The runs of a study merged: names, logs on a common scale, and one table of all metrics."""
