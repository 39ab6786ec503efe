"""Static analyses of expressions and updates."""
