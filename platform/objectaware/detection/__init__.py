"""Detection and segmentation: Mask R-CNN fine-tuned from a checkpoint's backbone, and average precision on COCO.

The network is the paper's R50-C4 as MoCo's code configures it on detectron2, built from torchvision's parts.
"""
