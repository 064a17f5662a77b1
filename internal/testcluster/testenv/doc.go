// Package testenv gives the tests of any package what they need around them: a network
// namespace of their own, a skip where that cannot be made, expired certificates, a log, and
// Prometheus' judgement of what was scraped. It guarantees that tests never meet the machine's
// network, that a goroutine which outlives them is a failure, and that CI fails where it
// cannot make namespaces. It must not be imported outside of tests. It is called by the
// TestMain of packages that make links or start daemons, and by tests. Start with Run.
package testenv
