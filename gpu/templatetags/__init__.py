"""Template tags of the gpu application."""
