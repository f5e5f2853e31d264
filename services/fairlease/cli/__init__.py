"""The command line: publishes commands, asks the explainer, prints what comes back.

It owns no state and decides nothing. Every import that costs time waits until a command needs it, so
that an answer is there within 350 ms of pressing return. What a command does lives in the module
that `verbs.py` names for it; all of them are `run(args) -> int`, and the int is the exit code.
"""
