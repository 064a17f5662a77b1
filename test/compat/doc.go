// Package compat replays the recorded exchanges of Contiv 1.x (testdata) against
// this netmaster's API, in one process over the in-memory store.
//
// It guarantees that every difference in status class or answer is either
// listed, with its reason, or a failure.
//
// It must not contain anything but tests.
package compat
