package statemirror

import (
	"net/netip"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// closedFor is how long clients of a deleted service are refused at its addresses:
// otherwise connections that are open would hear nothing, and new ones would wait for
// somebody to have the address.
const closedFor = time.Minute

type closedService struct {
	addrs []netip.Addr
	since time.Time
}

func (c *State) setClusterServiceLocked(s model.ClusterService) {
	delete(c.closed, s.Key)
	c.reopenLocked(slices.Concat(s.Addrs, s.Balanced, s.External)...)
	c.comp.SetClusterService(s)
}

func (c *State) setServiceLocked(s model.Service) {
	delete(c.closed, s.Key)
	v4, v6 := s.Addrs()
	c.reopenLocked(v4, v6)
	c.comp.SetService(s)
}

// closeServiceLocked takes a service out of the picture: at once, unless its deletion
// has come just now.
func (c *State) closeServiceLocked(k any) {
	if c.live {
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
	c.forgetServiceLocked(k)
}

func (c *State) forgetServiceLocked(k any) {
	delete(c.closed, k)
	switch k := k.(type) {
	case model.ServiceKey:
		c.comp.DeleteService(k)
	case model.ClusterServiceKey:
		c.comp.DeleteClusterService(k)
	}
}

// reopenLocked gives addresses of closed services to whoever has them now.
func (c *State) reopenLocked(addrs ...netip.Addr) {
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
			c.forgetServiceLocked(k)
			break
		}
	}
}

// forgetClosedLocked ends what has been closed for so long.
func (c *State) forgetClosedLocked(grace time.Duration) {
	for k, s := range c.closed {
		if time.Since(s.since) >= grace {
			c.forgetServiceLocked(k)
			c.Soon("a service was deleted a while ago")
		}
	}
}
