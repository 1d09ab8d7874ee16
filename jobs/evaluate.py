"""`objectaware evaluate` as a Ray job.

ray job submit --working-dir . -- python jobs/evaluate.py linear linear.yaml
"""

from job import run_command

if __name__ == "__main__":
    run_command("evaluate")
