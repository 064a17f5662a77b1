package dns

import (
	"net/netip"
	"sync/atomic"
)

// counters are Stats as they grow.
type counters struct {
	queries, tcp, local, nodata, nxdomain, forwarded, cacheHits, failures, malformed, refused, limited, loops atomic.Uint64
}

// Stats counts what has been asked since the start, and tells the present state.
type Stats struct {
	Queries   uint64 `json:"queries"`   // well-formed questions of local ports
	TCP       uint64 `json:"tcp"`       // of the queries: over TCP
	Local     uint64 `json:"local"`     // answered from the cluster's names
	NoData    uint64 `json:"nodata"`    // of the local ones: the name has no records of the type asked for
	NXDomain  uint64 `json:"nxdomain"`  // of the local ones: there is no such name
	Forwarded uint64 `json:"forwarded"` // asked of a resolver of the host
	CacheHits uint64 `json:"cacheHits"` // answered from cached answers of resolvers
	Failures  uint64 `json:"failures"`  // no resolver answered
	Malformed uint64 `json:"malformed"` // messages that are not well-formed questions
	Refused   uint64 `json:"refused"`   // from an address that is no local port's, or of a kind that is not served
	Limited   uint64 `json:"limited"`   // refused because too many were under way
	Loops     uint64 `json:"loops"`     // times that a resolver of the host was found to ask this server

	CacheEntries int              `json:"cacheEntries"`
	CacheBytes   int              `json:"cacheBytes"`
	Resolvers    []netip.AddrPort `json:"resolvers"`
	Problem      string           `json:"problem,omitempty"` // why names outside cannot be resolved
}

// Stats returns the counters and the present state.
func (s *Server) Stats() Stats {
	c := &s.count
	out := Stats{
		Queries: c.queries.Load(), TCP: c.tcp.Load(), Local: c.local.Load(), NoData: c.nodata.Load(), NXDomain: c.nxdomain.Load(),
		Forwarded: c.forwarded.Load(), CacheHits: c.cacheHits.Load(), Failures: c.failures.Load(), Malformed: c.malformed.Load(),
		Refused: c.refused.Load(), Limited: c.limited.Load(), Loops: c.loops.Load(),
	}
	out.CacheEntries, out.CacheBytes = s.cache.size()
	out.Resolvers, out.Problem = s.upstreams.state()
	return out
}
