// Package agent is the loop of one host: it mirrors what concerns the host
// (picture), compiles it, hands the picture to the driver, tells how the host is,
// and lets runtimes attach and detach containers (attachment).
//
// An Agent joins parts, each of which owns its state: what the host knows of the
// cluster (mirror), its name (hostLease, registration), the driver (dataPlane),
// attachments, observer, sockets, and what announces and probes. They ask the Agent
// through interfaces and functions.
//
// It guarantees: no write to the data plane before the first complete snapshot;
// with the store away the last picture stays, Attach fails clearly and Detach
// works; at the end, requests under way finish and the data plane keeps
// forwarding.
//
// It must not know how the control plane decides (it asks netmaster over REST),
// which orchestrator asks, or which store and driver it was given.
package agent
