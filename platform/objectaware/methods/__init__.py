"""Networks and the methods that train them: backbones, heads, MoCo v2, BYOL, SimSiam, checkpoints."""
