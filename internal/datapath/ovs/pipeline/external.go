package pipeline

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
)

// Backends that are no endpoints (docs/design/services.md): what a client sends them is
// led as its own packet to the address would be, by egress.

// externalBase adds where what no endpoint has goes.
func (l baseFlows) externalBase() {
	l.add(Backend, 9, match(origin(fromPort)), goTo(Destination))
	l.drop(Backend, 9, match(origin(fromExternalLocal)), driver.DropUnknownDest)
	relayFlows(l).base()
}

// externalBackends drops what is for such a backend of a family whose address an endpoint has, which
// is another backend.
func (s Service) externalBackends(l *list, v6 bool) {
	for _, b := range s.Backends.All() {
		if a := b.Addr(v6); b.External() && a.IsValid() && s.IsEndpoint != nil && s.IsEndpoint(a) {
			l.drop(Backend, 120, toAddr(a, of.Eq(regService, s.Number)), driver.DropUnknownDest)
		}
	}
}

// rememberExternal remembers connections to services whose backend is beyond the host, in the name
// of the port's private address.
func (x family) rememberExternal(l *list, leaving of.Match, private netip.Addr) {
	l.add(ConntrackCommit, 21, match(append(leaving, isService, of.State(of.StateNew|of.StateTrk, 0))...),
		goTo(CountConnections), goTo(LearnAffinity), of.CT{Commit: true, ZoneField: regDomain, NAT: of.NATSrc, To: private, Mark: markService, Recirc: true, Table: uint8(Output)})
}
