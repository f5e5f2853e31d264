"""Health: which hosts there are, and what keeps them from new work.

Owns hosts, their holds, drains and lost leases (scope `alloc`). Follows every inbox (cordon-host, return-host,
request-drain, undrain-host), the reports of hosts and the renewals of their leases. Never ends a job: a host
it holds keeps what runs there, and of a host that fell silent it only says that nothing is left (7.6).
"""
