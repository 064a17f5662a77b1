// Package clienttest tests the simulated APIC with Cisco's own client, so that both read
// the documents alike. It guarantees that what the tests of netmaster's ACI controller
// accept is what a client of the fabric understands. It must not be imported: it is a
// module of its own, so that no program of ours depends on that client. It is called by
// `make test-unit`. Start with TestOtherClientsAgreeWithTheSimulator.
package clienttest
