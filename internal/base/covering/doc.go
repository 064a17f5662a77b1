// Package covering chooses rows of a test: few combinations of values in which the values
// of some dimensions meet in every way, as in D. M. Cohen et al., "The AETG System: An
// Approach to Testing Based on Combinatorial Design", IEEE Transactions on Software
// Engineering 23 (7), 1997.
//
// It guarantees that the same question has the same answer, and that every combination
// that can be occurs.
//
// It must not know what the values mean. Tests call it; begin with Rows.
package covering
