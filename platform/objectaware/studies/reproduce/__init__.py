"""The paper's tables and figures run as stages: plans at a scale, studies, and what they take beforehand."""
