// Package optioncoverage holds the rule that what is accepted has effect: tests
// list every field, flag and option of an interface here, each with the test
// that shows its effect, or with the sentence that says that it has none.
//
// It guarantees that nothing is forgotten: an entry that is missing, left over,
// names a test that does not exist, or one whose file never gives the entry, fails, with
// what to do. It must not be
// imported outside of tests.
package optioncoverage
