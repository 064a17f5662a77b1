// Package observe is what a host reports about itself: health, status, metrics, inspection,
// and the data plane's events with names.
//
// It guarantees that observing changes nothing and costs the data plane a bounded share of
// the time; and that a difference from the desired state is reported as soon as it is
// known, and so is its end.
//
// It must not write to the store, nor decide anything: callers read its conditions.
package observe
