// Package chaos makes random operator mistakes on a running lab, one after
// another: wrong flags, a host's name taken, deleted files, devices, filters,
// rules, flows and pins, daemons killed and paused in any order, a full disk,
// another store, backups restored, old ones too, bad requests. A seed decides
// which, on which host and for how long.
//
// It guarantees that containers which no mistake touches are watched all the
// while (a ping every 10 ms and a TCP connection, on one host and across
// hosts), that every outage longer than what documentation says of a mistake is
// reported with the mistakes around it, that a packet which policy denies or
// another tenant sends is never seen where it must not come, and that within 10
// seconds after the last mistake `netctl status` says what is wrong and nothing
// else (each kind of mistake that leaves something wrong is left in once), or
// that all is well, and that it never says so while allowed packets have not been
// answered for 10 seconds. The same seed makes the same mistakes.
//
// TestStatusTellsDamages damages rows, links, rules, maps, flows and processes of a living
// lab, certificates of a secure one, and clocks, one at a time, beside probes of everything
// that is allowed. It guarantees that while a
// probe has had no answer for 10 seconds, neither `netctl status` nor the hosts' /healthz nor
// the metrics behind the alerts say that all is well, and that all do within 20 seconds after
// everything works again. A clock that is set, and a container that changes its own
// interface, are notices or warnings, and nothing else is said of them. Damages that not all
// of the three tell of are its knownGaps, with reasons.
//
// It must not judge what it cannot repeat: an outage names seed and step.
package chaos
