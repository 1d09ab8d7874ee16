"""The paper's tables and figures, run as stages: plans at a scale, studies, and estimates of their cost."""
