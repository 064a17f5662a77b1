// Package conformance tests drivers against the one meaning of policy: a
// conformance suite for any driver (Run; RunAttached for programs that are
// attached in more than one way), clusters and generated policies to try it on
// (StandardTopology, Cases), and what must come out of them (World, which is
// compile and the oracle on every host).
//
// It guarantees that cases are the same in every run, but for samples, which the
// seed decides (-seed; without it the commit does; -full tries all), and that they cover,
// pairwise, direction, action, protocol, kind of peer, ties, second policies
// and encapsulations.
//
// It is for tests only; it must not know any driver but the oracle.
package conformance
