"""How a batch of controllers is run on a task."""
