"""Health: which hosts there are, and what keeps them from new work.

Owns hosts and their holds (scope `alloc`). Follows every inbox (cordon-host, return-host) and the
reports of hosts. Never ends a job: a host it holds keeps what runs there.
"""
