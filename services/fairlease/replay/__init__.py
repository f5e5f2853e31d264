"""Replay: fold a log and decide every decision again, at its own basis, with today's code."""
