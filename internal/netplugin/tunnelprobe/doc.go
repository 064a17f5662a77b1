// Package tunnelprobe tests the tunnels to the hosts that this host's containers send to,
// with small packets and full-size ones. It guarantees that a host is reported after three
// lost rounds, or ten seconds if it never answered, that three answered rounds end that,
// and at most 200 packets a second. It must not know the store, or which driver there is.
// It is called by netplugin's agent, which says which hosts to test. Start with Prober;
// docs/design/driver.md explains the probes.
package tunnelprobe
