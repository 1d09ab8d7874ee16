"""The training loop, and what it is fed: views, policies, schedules."""
