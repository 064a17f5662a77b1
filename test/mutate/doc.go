// Command mutate changes lines of Go and of the eBPF programs one by one, as a small
// mistake would, and runs the tests: a mutant that no test fails on shows untested code.
// Hangs are reported apart from kills, which count only if the tests pass afterwards.
// Mutants of Go functions are built together, others one by one, in a git worktree of HEAD.
// equivalent.txt lists mutants without an effect, with reasons. Nothing that measures time
// may run beside it. `make mutate PKG=./internal/model BASE=main` or `make mutate
// DECISIONS=1` (in parts, decisions.txt) runs it. Start with run.
package main
