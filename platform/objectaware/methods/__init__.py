"""Networks and what they are trained by: backbones, heads, MoCo v2, BYOL, checkpoints."""
