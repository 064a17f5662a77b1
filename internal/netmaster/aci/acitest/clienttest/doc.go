// Package clienttest holds the simulated APIC to a client that is not ours, Cisco's: both
// read the documents alike. It guarantees that what the tests of netmaster's ACI controller
// pass on is what a fabric's client understands. It is a module of its own, so that no
// program of ours depends on that client, and must not be imported. Callers: `make
// test-unit`. Start with TestClient.
package clienttest
