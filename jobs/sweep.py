"""`objectaware sweep` as a Ray job.

ray job submit --working-dir . -- python jobs/sweep.py sweeps/p_mix.yaml
"""

from job import run_command

if __name__ == "__main__":
    run_command("sweep")
