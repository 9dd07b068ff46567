"""Collections of elites, and the cells that tell them apart."""
