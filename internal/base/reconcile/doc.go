// Package reconcile is the loop that makes actual state follow desired state, whatever
// either of them is. It guarantees that no wake-up is lost, that any number of wake-ups
// during a run cause one more run, that runs never overlap, and that Run returns only after
// everything that it started. It must not know networking or stores. It is called by
// netplugin's agent. Start with Runner.
package reconcile
