"""Ledger: policy, the budget tree, and what attempts were charged.

Owns the tree and the policy (scope `intake`), and one charge for every ended attempt. Follows every
inbox (change-budget, change-policy). Never ranks: standing is computed from the fold by whoever needs it.
"""
