// Package waiting is how goroutines wait for each other and for time: Changes
// and Value for a condition, Bell for work that one of them does, Turns for one
// at a time by key, Pause for time alone, Retry and Backoff for the next try of
// something that failed.
//
// It guarantees that nothing is missed between looking and waiting, that telling
// blocks nobody, and that every wait ends with its context.
//
// It must not know what is waited for: it imports nothing of this module.
package waiting
