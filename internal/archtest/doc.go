// Package archtest holds the tests that keep the module's shape: who may
// import whom, and the habits of the house that no linter knows.
//
// It guarantees that every package of the module has a rule, that every rule
// names a package that exists, and that each says why.
//
// It must not be imported: it has tests only.
package archtest
