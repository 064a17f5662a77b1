// Package covering chooses few combinations of values in which the values of some
// dimensions meet in every way, as in D. M. Cohen et al., "The AETG System", IEEE
// Transactions on Software Engineering 23 (7), 1997. It guarantees the same rows for the
// same input, and that every possible combination of these dimensions occurs. It must not
// know what the values mean. It is called by the conformance suite of drivers and by
// test/matrix. Start with Rows.
package covering
