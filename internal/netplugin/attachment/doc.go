// Package attachment attaches and detaches the containers of one host, publishes their
// ports, and journals them. It guarantees that Attach returns when the data plane has the
// port, that Detach succeeds and queues what it cannot release, and that a kill at any step
// leaves nothing behind. Running containers are restored to a store that lacks them. It
// must not know which orchestrator asks, or write to the store: it asks netmaster. It is
// called by netplugin's agent, behind attach.Service. Start with Service, which joins its
// parts.
package attachment
