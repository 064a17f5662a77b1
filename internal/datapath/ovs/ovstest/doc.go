// Package ovstest starts an Open vSwitch for tests: a database server and a switch daemon
// in a new network namespace, with their sockets in a temporary directory. It guarantees
// that all of it is gone when the test ends. A missing prerequisite skips the test, or
// fails it where CI requires it. It must not touch the machine's own network or switch. It
// is called by the tests of the Open vSwitch driver. Start with Start.
package ovstest
