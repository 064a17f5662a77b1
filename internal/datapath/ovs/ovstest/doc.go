// Package ovstest starts an Open vSwitch of its own for tests: one database
// server and one switch daemon in a fresh network namespace, with their sockets
// in a temporary directory.
//
// It guarantees that all of it is gone when the test ends, and that a missing
// prerequisite is a failure under CI=true or CONTIV_TEST_REQUIRE=1 and a skip
// elsewhere. It must not touch the machine's own network or switch.
package ovstest
