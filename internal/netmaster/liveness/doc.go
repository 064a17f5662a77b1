// Package liveness knows which hosts are alive: which agents this netmaster has heard of,
// what the registry has, and what hosts report of themselves. It guarantees that a host
// counts as away only by the time that this process has listened, by no host's clock. It
// must not write to the store, or decide what becomes of a host. It is called by package
// control, by the API server for metrics and by cmd/netmaster. Start with Heartbeats, then
// Watch (docs/design/control.md).
package liveness
