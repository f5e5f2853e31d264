"""Admission: contracts become jobs, and reports become their lives.

Owns a job from its admission to its end (scope `intake`): admitted, refused, started, ending, part gone,
ended, and the terminal event. Follows every inbox (submit-job, cancel-job) and the reports of runs.
Never grants, never evicts: GPUs are released here and given elsewhere.
"""
