// Package desired is the picture of one host's data plane: what compile makes
// and a driver makes true. It is data only.
//
// It guarantees that a Host is immutable once published and made of shared
// parts (Map), so that two pictures that differ in one object can be compared
// at a cost that does not grow with what they have in common.
//
// It must not do I/O and must not know how any data plane works.
package desired
