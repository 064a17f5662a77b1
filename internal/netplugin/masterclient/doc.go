// Package masterclient is netplugin's client of the cluster's netmasters: it finds them by
// flag or registry, and sends its requests. It guarantees that errors have model's kinds,
// and that a netmaster that does not answer costs at most Timeout. It must not know
// attachments, the desired state or the data plane. It is called by netplugin's agent,
// attachment and observer. Start with Client.
package masterclient
