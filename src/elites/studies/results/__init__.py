"""The results of a study: its runs, their curves on a common scale, and one table of all metrics."""
