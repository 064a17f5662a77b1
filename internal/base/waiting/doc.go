// Package waiting lets goroutines wait for a condition, for each other, for time, and for
// the next attempt. It guarantees that no change is missed between a check and the wait,
// that notifying never blocks, and that every wait ends with its context. It must not know
// what is waited for: it imports nothing of this module. It is called by netmaster,
// netplugin and the stores, wherever a goroutine waits. Start with Changes.
package waiting
