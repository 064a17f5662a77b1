// Package driver is the boundary to a host's data plane: one verb, Apply,
// which makes the host look like a desired.Host, what it reports, and what a
// monitor of it tells.
//
// It guarantees one meaning of policy for all data planes: internal/datapath/reference is
// the reference, and drivertest compares every driver with it.
//
// It must not know where a desired.Host comes from; no store, no API.
package driver
