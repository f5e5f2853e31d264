"""Explainer: answers and the feed, projections of the log.

Owns nothing in the log. Follows the log, answers questions from its fold, and publishes the answers
to commands and the steps of jobs. Never decides.
"""
