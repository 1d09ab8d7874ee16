"""`objectaware demo` as a Ray job.

ray job submit --working-dir . -- python jobs/demo.py
"""

from job import run_command

if __name__ == "__main__":
    run_command("demo")
