package picture

import (
	"net/netip"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// closedFor is how long clients of a deleted service are refused at its addresses:
// otherwise connections that are open would hear nothing, and new ones would wait for
// somebody to have the address.
const closedFor = time.Minute

type closedService struct {
	addrs [2]netip.Addr
	since time.Time
}

func (c *Cluster) setClusterServiceLocked(s model.ClusterService) {
	delete(c.closed, s.Key)
	for _, a := range s.Addrs {
		c.reopenLocked(a, a)
	}
	c.comp.SetClusterService(s)
}

func (c *Cluster) setServiceLocked(s model.Service) {
	delete(c.closed, s.Key)
	c.reopenLocked(s.Addrs())
	c.comp.SetService(s)
}

// closeServiceLocked takes a service out of the picture: at once, unless its deletion
// has come just now.
func (c *Cluster) closeServiceLocked(k any) {
	if c.live {
		var v4, v6 netip.Addr
		var ok bool
		switch k := k.(type) {
		case model.ServiceKey:
			v4, v6, ok = c.comp.CloseService(k)
		case model.ClusterServiceKey:
			v4, v6, ok = c.comp.CloseClusterService(k)
		}
		if ok {
			c.closed[k] = closedService{[2]netip.Addr{v4, v6}, time.Now()}
			return
		}
	}
	c.forgetServiceLocked(k)
}

func (c *Cluster) forgetServiceLocked(k any) {
	delete(c.closed, k)
	switch k := k.(type) {
	case model.ServiceKey:
		c.comp.DeleteService(k)
	case model.ClusterServiceKey:
		c.comp.DeleteClusterService(k)
	}
}

// reopenLocked gives addresses of closed services to whoever has them now.
func (c *Cluster) reopenLocked(v4, v6 netip.Addr) {
	for k, s := range c.closed {
		if v4.IsValid() && v4 == s.addrs[0] || v6.IsValid() && v6 == s.addrs[1] {
			c.forgetServiceLocked(k)
		}
	}
}

// forgetClosedLocked ends what has been closed for so long.
func (c *Cluster) forgetClosedLocked(grace time.Duration) {
	for k, s := range c.closed {
		if time.Since(s.since) >= grace {
			c.forgetServiceLocked(k)
			c.Soon("a service was deleted a while ago")
		}
	}
}
