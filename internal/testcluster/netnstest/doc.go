// Package netnstest runs all tests of a package in a network namespace of their own. It
// guarantees that they never meet the machine's network, that a goroutine which outlives
// them is a failure, and that they are skipped with the reason, or fail in CI, where
// namespaces cannot be made. It must not be imported outside of tests. It is called by the
// TestMain of packages that make links or start daemons. Start with Run.
package netnstest
