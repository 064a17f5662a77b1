// Package archtest tests the structure of the module: which package may import which,
// names, package comments, sizes, and habits that no linter knows; and that each accepted
// field, flag and option has an effect, which a test shows (CheckEffects). It guarantees
// that every package has an import rule, and every rule and exception a reason. It must not
// be imported outside of tests. It is called by `go test`, by `make lint`, and by tests of
// the programs, netctl, the API server and the CNI server. Start with rules_test.go.
package archtest
