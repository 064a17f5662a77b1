package statemirror

import (
	"net/netip"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
)

// closedFor is how long clients of a deleted service are refused at its addresses:
// otherwise connections that are open would hear nothing, and new ones would wait for
// somebody to have the address.
const closedFor = time.Minute

// closedServices owns the services that were deleted a moment ago, and hands services to
// the Compiler. The State enters them.
type closedServices struct {
	*shared
	comp   *compile.Compiler
	closed map[model.ServiceKey]closedService
}

type closedService struct {
	addrs []netip.Addr
	since time.Time
}

func (c *closedServices) set(s model.Service) {
	delete(c.closed, s.Key)
	c.reopen(s.AllAddrs()...)
	c.comp.SetService(s)
}

// close takes a service out of the desired state: at once, unless its deletion is live,
// so has come just now.
func (c *closedServices) close(k model.ServiceKey, live bool) {
	if live {
		if addrs := c.comp.Services.Close(k); len(addrs) > 0 {
			c.closed[k] = closedService{addrs, time.Now()}
			return
		}
	}
	c.forget(k)
}

func (c *closedServices) forget(k model.ServiceKey) {
	delete(c.closed, k)
	c.comp.DeleteService(k)
}

// reopen gives addresses of closed services to their present owners.
func (c *closedServices) reopen(addrs ...netip.Addr) {
	for k, s := range c.closed {
		for _, a := range addrs {
			if !slices.Contains(s.addrs, a) {
				continue
			}
			c.comp.Services.Reopen(k, a)
			s.addrs = slices.DeleteFunc(slices.Clone(s.addrs), func(x netip.Addr) bool { return x == a })
			if c.closed[k] = s; len(s.addrs) == 0 {
				c.forget(k)
			}
		}
	}
}

// forgetClosed ends what has been closed for so long.
func (c *closedServices) forgetClosed(grace time.Duration) {
	for k, s := range c.closed {
		if time.Since(s.since) >= grace {
			c.forget(k)
			c.Agent.Soon("a service was deleted a while ago")
		}
	}
}
