"""`objectaware reproduce` as a Ray job.

ray job submit --working-dir . -- python jobs/reproduce.py bg-main --scale smoke
"""

from job import run_command

if __name__ == "__main__":
    run_command("reproduce")
