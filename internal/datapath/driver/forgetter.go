package driver

import (
	"context"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Forgetter is a driver that can forget single connections.
type Forgetter interface {
	// Forget ends connections and their translations, as if none of their packets had come. What
	// is not there is no failure. The error is of kind model.ErrUnavailable while the data
	// plane cannot be asked to.
	Forget(ctx context.Context, all []Connection) error
}

// Connection is a connection as its first packet shows it to an endpoint of this host.
type Connection struct {
	Network  model.NetworkID // of the endpoint
	Protocol model.Protocol  // as in the packet
	Src, Dst netip.AddrPort  // of ICMP both ports are the identifier
}
