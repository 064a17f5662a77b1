// Package masterclient is an agent's way to the cluster's netmasters: which ones
// there are, by flag or registry, and what is asked of them.
//
// It guarantees that errors have model's kinds, and that a netmaster that does
// not answer costs at most Timeout.
//
// It must not know attachments, the picture or the data plane.
package masterclient
