"""The house tests itself: lengths, names, words, reasons, dead files.

Each module holds one family of rules as functions of a tree, the test that runs them over this
repository, and a test that shows each of them failing on a bad sample: a rule that cannot fail
guards nothing. Findings read `path:line: what, and the way out`.
"""
