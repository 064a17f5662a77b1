// Package compat replays the recorded exchanges of Contiv 1.x (testdata) with this
// netmaster's API, in one process over the store in memory. It guarantees that every
// difference in status class or answer is listed with its reason, or fails. It must not
// contain anything but tests. It is called by `make test-unit`. Start with TestRecordedExchangesOf1xAreAnsweredAlike.
package compat
