"""A demo small enough for a test."""

from __future__ import annotations

# 144 pictures are three groups of localization.
RECIPE = """\
num_train: 144
num_val: 45
image_size: 48
pretrain:
  backbone: resnet10_narrow
  num_epochs: 2
  batch_size: 32
  queue_size: 128
  execution: {num_loader_threads: 1, num_compute_threads: 1, precision: fp32}
"""
