// Command mutate changes the lines of packages one by one, as a small mistake would, and
// runs the tests: a mutant that no test fails on shows what no test holds. It mutates Go
// and the eBPF programs' C. `make mutate PKG=./internal/netmaster/access BASE=main` mutates what
// changed since a commit. `make mutate DECISIONS=1` mutates the files of decisions.txt in parts,
// each of which goes on where the report of the former ones ends.
//
// A mutant is killed if a test fails on it. One that hangs until the tests' time is over is
// told apart, and kills count only if the tests pass without a mutant afterwards.
//
// It guarantees that the checkout is left as it is: mutants live in a git worktree of
// HEAD. A mutant that changes nothing which tests could see is listed with the reason in
// equivalent.txt, and a line there that fits no mutant is an error.
//
// It must not be run beside tests that measure time. Begin with run.
package main
