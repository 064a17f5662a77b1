// Package optioncoverage tests that every accepted field, flag and option has an effect:
// tests list each with the test that shows its effect, or with a sentence that says that it
// has none. It guarantees that an entry fails if it is missing, left over, or names a test
// that does not exist or never sets the option. It must not be imported outside of tests.
// It is called by the tests of the programs, netctl, the API server and the CNI server.
// Start with Check.
package optioncoverage
