"""What learns from experience: the replay buffer and the critics."""
