# Jobs that do not behave. To be read with `UNRULY=<this file>; export UNRULY; . "$UNRULY"`.

linger() { # hears nothing, never ends
	trap '' TERM INT HUP USR1 USR2
	while :; do sleep 0.5; done
}

stubborn() { linger; }

forking() { # a family whose members come and go, and none of them hears anything
	for _ in 1 2 3; do (linger) & done
	(while :; do (sleep 0.3) & sleep 0.5; done) &
	linger
}

daemon() { # a process that left parent, session and terminal: forked twice, in a session of its own
	(setsid sh -c '. "$UNRULY"; linger' </dev/null >/dev/null 2>&1 &)
}

daemonising() {
	daemon
	daemon
	linger
}

dying() { # by a signal of its own, in the middle, with a daemon left behind
	daemon
	sleep 0.4
	kill -9 $$
}
