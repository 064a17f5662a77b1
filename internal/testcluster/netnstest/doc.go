// Package netnstest is what the tests of packages that make links and start
// daemons need: a network namespace of their own around all of a package's
// tests.
//
// It guarantees that such tests never meet the machine's network, that a
// goroutine which outlives them is a failure, and that they are skipped, with
// the reason, where namespaces cannot be made, or fail where CI demands them.
//
// It must not be imported but by tests.
package netnstest
