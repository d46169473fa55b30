"""How dates are written, where Django's own choice for a language would be read wrongly."""
