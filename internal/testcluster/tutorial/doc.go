// Package tutorial follows pages as their readers do: it runs the code blocks that are marked
// runnable, in order, in one shell for each machine. It guarantees that a command which fails
// fails the test, and so does one behind "!" that does not. It must not be imported outside
// of tests. It is called by test/slice and test/docker. Start with Follow.
package tutorial
