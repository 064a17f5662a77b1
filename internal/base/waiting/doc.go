// Package waiting lets goroutines wait for each other and for time: Changes and Value for a
// condition, Bell for work that one goroutine does, Turns for one at a time by key, Pause
// for time alone, Retry and Backoff for the next attempt.
//
// It guarantees that no change is missed between looking and waiting, that notifying never
// blocks, and that every wait ends with its context.
//
// It must not know what is waited for: it imports nothing of this module.
package waiting
