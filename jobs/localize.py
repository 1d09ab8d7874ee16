"""`objectaware localize` as a Ray job.

ray job submit --working-dir . -- python jobs/localize.py /shared/photos --checkpoint /shared/moco
"""

from job import run_command

if __name__ == "__main__":
    run_command("localize")
