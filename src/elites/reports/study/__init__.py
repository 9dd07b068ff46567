"""The report that `elites study report` makes of a folder of runs."""
