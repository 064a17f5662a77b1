// Package reachability computes, from a desired state, which protocols and ports one side
// may open connections to on the other, and which rules decide. It guarantees exact sets, by
// intervals of ports and by prefixes of addresses, never by samples: the reference data plane
// decides about each packet of a part as the part says. It must not do I/O, nor change the
// desired state. It is called by netmaster, for a cluster whose endpoints are all compiled as
// if they were on one host. Start with Cluster.Between; docs/design/reachability.md explains it.
package reachability
