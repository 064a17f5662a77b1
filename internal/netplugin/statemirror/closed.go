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
	closed map[any]closedService // by the service's key
}

type closedService struct {
	addrs []netip.Addr
	since time.Time
}

func (c *closedServices) setClusterService(s model.ClusterService) {
	delete(c.closed, s.Key)
	c.reopen(slices.Concat(s.Addrs, s.Balanced, s.External)...)
	c.comp.SetClusterService(s)
}

func (c *closedServices) setService(s model.Service) {
	delete(c.closed, s.Key)
	v4, v6 := s.Addrs()
	c.reopen(v4, v6)
	c.comp.SetService(s)
}

// close takes a service out of the desired state: at once, unless its deletion is live,
// so has come just now.
func (c *closedServices) close(k any, live bool) {
	if live {
		var addrs []netip.Addr
		switch k := k.(type) {
		case model.ServiceKey:
			if v4, v6, ok := c.comp.Services.Close(k); ok {
				addrs = []netip.Addr{v4, v6}
			}
		case model.ClusterServiceKey:
			addrs = c.comp.ClusterServices.Close(k)
		}
		if len(addrs) > 0 {
			c.closed[k] = closedService{addrs, time.Now()}
			return
		}
	}
	c.forget(k)
}

func (c *closedServices) forget(k any) {
	delete(c.closed, k)
	switch k := k.(type) {
	case model.ServiceKey:
		c.comp.DeleteService(k)
	case model.ClusterServiceKey:
		c.comp.DeleteClusterService(k)
	}
}

// reopen gives addresses of closed services to their present owners.
func (c *closedServices) reopen(addrs ...netip.Addr) {
	for k, s := range c.closed {
		for _, a := range addrs {
			if !a.IsValid() || !slices.Contains(s.addrs, a) {
				continue
			}
			if of, is := k.(model.ClusterServiceKey); is && len(s.addrs) > 1 {
				c.comp.ClusterServices.Reopen(of, a)
				s.addrs = slices.DeleteFunc(slices.Clone(s.addrs), func(x netip.Addr) bool { return x == a })
				c.closed[k] = s
				continue
			}
			c.forget(k)
			break
		}
	}
}

// forgetClosed ends what has been closed for so long.
func (c *closedServices) forgetClosed(grace time.Duration) {
	for k, s := range c.closed {
		if time.Since(s.since) >= grace {
			c.forget(k)
			c.Soon("a service was deleted a while ago")
		}
	}
}
