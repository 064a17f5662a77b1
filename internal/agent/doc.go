// Package agent is the loop of one host: it mirrors what concerns the host,
// compiles it, hands the picture to the driver, and attaches and detaches
// containers.
//
// It guarantees: no write to the data plane before the first complete snapshot;
// with the store away the last picture stays, Attach fails clearly and Detach
// works; Attach answers when the port is programmed at the endpoint's revision
// or later; whatever step of an attachment the process dies at, the next start
// leaves nothing of it behind.
//
// It must not know how the control plane decides (it asks netmaster over REST),
// which orchestrator asks, or which store and driver it was given.
package agent
