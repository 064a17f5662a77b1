// Package pkitest makes certificates that package pki does not make: expired ones. It
// guarantees that they differ from the authority's certificates by their times alone. It
// must not be imported outside of tests. It is called by the tests of membership,
// enrollment and test/chaos. Start with End.
package pkitest
