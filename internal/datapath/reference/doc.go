// Package reference is the reference data plane: a driver in memory that executes a
// desired.Host on packets, a fabric that joins several such hosts, and the packets
// themselves. Every driver has to do with a packet what the oracle does; drivertest
// compares.
//
// It guarantees that answers are a function of what was applied and of the
// packets sent before, and that applying a change costs the change, however
// many endpoints, connections, rules and networks the host has.
//
// It does not model messages of IGMP and MLD: no policy judges them, and what becomes of
// them is a report to the agent, and not a verdict. drivertest's suite MulticastMessages
// says it for each type, sender and network.
//
// It must not know a real data plane, nor where a desired.Host comes from. It
// reads no store, opens no file, and is fit for any process: tests, the lab's
// expectations, and netmaster.
package reference
