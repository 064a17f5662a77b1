package agent

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/netplugin/hostsync"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/relay"
)

// mirrored is all that this host follows of the cluster: the store, or netmasters that relay
// it; from is nil unless they do.
func mirrored(cfg *Config, masters *masterclient.Client) (st store.Mirrorer, from *relay.Reader) {
	st = cfg.Store
	if cfg.FromNetmasters {
		from = relay.NewReader(relay.Config{Log: cfg.Log, Hubs: masters})
		st = from
	}
	if cfg.Mirrored != nil {
		st = cfg.Mirrored(st)
	}
	return st, from
}

// mirror is what this host knows of the cluster, and of its own ways to it. Its parts guard
// their own state; New makes them, and only underlay is a value.
type mirror struct {
	cluster  *statemirror.State
	way      *hostsync.Egress
	control  *statemirror.ControlPlane
	underlay hostsync.Underlay
	source   store.Mirrorer // of all of it
	relay    *relay.Reader  // nil = netmasters are not mirrored from
}

// Mirroring is what GET /inspect/mirror tells.
type Mirroring struct {
	From      string    `json:"from"` // store or netmaster
	Netmaster string    `json:"netmaster,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Why       string    `json:"why,omitempty"` // no netmaster is mirrored from
	Moves     int       `json:"moves"`         // how often it has changed since netplugin's start
}

// Mirroring tells from where this host learns of the cluster's state.
func (c *mirror) Mirroring() Mirroring {
	if c.relay == nil {
		return Mirroring{From: "store"}
	}
	f := c.relay.From()
	return Mirroring{From: "netmaster", Netmaster: f.Hub, Since: f.Since, Why: f.Why, Moves: max(0, f.Moves-1)}
}

func (c *mirror) getMirroring(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, c.Mirroring())
}

func (c *mirror) mirrorMetrics() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "contiv_netplugin_mirrors_from_netmaster", Help: "1 while this host mirrors the cluster's state from a netmaster, else 0.",
		}, func() float64 {
			if c.Mirroring().Netmaster != "" {
				return 1
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "contiv_netplugin_mirror_moves_total", Help: "Changes of the source from which this host mirrors the cluster's state.",
		}, func() float64 { return float64(c.Mirroring().Moves) }),
	}
}
