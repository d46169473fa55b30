"""The root of what the planning core refuses."""


class PlanningError(ValueError):
    """Input that cannot be planned with; the text is one sentence for the person who gave it."""
