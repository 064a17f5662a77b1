// Package archtest tests the structure of the module: which package may import which,
// names, package comments, sizes, and habits that no linter knows. It guarantees that every
// package has an import rule, and that every rule names a package and a reason. It must not
// be imported: it has tests only. It is called by `go test` and by `make lint`. Start with
// rules_test.go.
package archtest
