"""Names of the variants of published data sets, apart from what opens them, so that a configuration loads fast."""

from __future__ import annotations

CORRUPTIONS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
"""The corruptions of ImageNet-C by kind, each in five severities; the archives are named by the kind."""

CORRUPTED_VARIANTS = tuple(
    f"{corruption}-{severity}" for kind in CORRUPTIONS.values() for corruption in kind for severity in range(1, 6)
)
"""Variants of ImageNet-C, such as `gaussian_noise-3`."""

FACTORS = ("size", "location", "rotation")
"""What SI-Score varies."""
