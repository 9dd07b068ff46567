"""Archives of elites, and their cells."""
