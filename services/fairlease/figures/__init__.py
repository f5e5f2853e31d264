"""The figures of core as they are told: hours, seconds and ratios, under names that do not change.

Core counts in integers. What divides stands here, so that the command line, the simulator and a replay tell the same
numbers; nothing here decides, and nothing of it is recorded.
"""
