// Package agent is the loop of one host: it mirrors what concerns the host, compiles it,
// applies it by the driver, reports status, and lets runtimes attach containers. It
// guarantees no write to the data plane before the first complete snapshot. Without a store
// the last desired state stays, Attach fails clearly and Detach works. At the end the data
// plane keeps forwarding. It must not know which orchestrator asks, or which store and
// driver it was given. It asks netmaster by REST only. It is called by cmd/netplugin and
// bench/scale. Start with Agent, which joins its parts; its loop is in loop.go.
package agent
