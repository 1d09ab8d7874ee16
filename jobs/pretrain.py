"""`objectaware pretrain` as a Ray job.

ray job submit --working-dir . -- python jobs/pretrain.py jobs/recipes/moco_resnet18_coco.yaml
"""

from job import run_command

if __name__ == "__main__":
    run_command("pretrain")
