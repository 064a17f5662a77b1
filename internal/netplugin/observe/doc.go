// Package observe is what a host reports about itself: health, status, metrics, inspection,
// and the data plane's events with names. It guarantees that observing changes nothing and
// costs the data plane a bounded share of time, and that a difference from the desired
// state, and its end, are reported at once. It must not write to the store or decide
// anything. It is called by netplugin's agent. Start with Observer.
package observe
