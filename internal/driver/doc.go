// Package driver is the boundary to a host's data plane: one verb, Apply,
// which makes the host look like a desired.Host, and Fake, which executes the
// same semantics in memory.
//
// It guarantees one meaning of policy for all data planes: Fake is the
// reference, and drivertest compares every driver with it.
//
// It must not know where a desired.Host comes from; no store, no API.
package driver
