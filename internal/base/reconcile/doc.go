// Package reconcile is the loop that makes actual state follow desired state,
// whatever either of them is: Runner wakes for every reason there is and runs
// one pass at a time.
//
// It guarantees that a wake-up is never lost, that any number of them while a
// pass runs cause exactly one more, that passes never overlap, and that Run
// returns only when nothing of it runs any more.
//
// It must not know networking, stores or any other package of this module but
// waiting.
package reconcile
