"""Reinforcement learning: the replay buffer and the critics."""
