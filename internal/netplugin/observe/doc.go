// Package observe is what a host tells of itself: health, status, metrics,
// inspection, and the data plane's events with names.
//
// It guarantees that to look changes nothing and costs the data plane a bounded
// share of the time; that what is not as wanted is told as soon as it is known,
// and told as gone.
//
// It must not write to the store, nor decide anything: who needs a judgement
// asks its conditions.
package observe
