"""How a plan becomes a change of a node."""
