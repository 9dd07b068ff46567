"""Scripts. A package only for the type checker, which would take `gymnasium.py` for Gymnasium itself."""
