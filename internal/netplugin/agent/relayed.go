package agent

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/relay"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// mirrored is what the picture is made from: the store, or in front of it netmasters that
// relay it.
func (a *Agent) mirrored() store.Reader {
	st := a.cfg.Store
	if a.cfg.FromNetmasters {
		a.relay = relay.NewReader(relay.Config{
			Store: st, Log: a.log, Serves: tables.Relayed(), Hubs: a.masters.Hubs, Open: a.masters.Relay,
		})
		st = a.relay
	}
	if a.cfg.Mirrored != nil {
		st = a.cfg.Mirrored(st)
	}
	return st
}

// Mirroring is what GET /inspect/mirror tells.
type Mirroring struct {
	From      string    `json:"from"` // store, netmaster, or nothing while that is not decided
	Netmaster string    `json:"netmaster,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Why       string    `json:"why,omitempty"` // of the store, where netmasters were asked for
	Moves     int       `json:"moves"`         // how often it has changed since netplugin's start
}

// Mirroring tells from where this host learns of the cluster's state.
func (a *Agent) Mirroring() Mirroring {
	if a.relay == nil {
		return Mirroring{From: "store"}
	}
	f := a.relay.From()
	m := Mirroring{Netmaster: f.Hub, Since: f.Since, Why: f.Why, Moves: max(0, f.Moves-1)}
	switch {
	case f.Hub != "":
		m.From = "netmaster"
	case !f.Since.IsZero():
		m.From = "store"
	}
	return m
}

func (a *Agent) getMirroring(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, a.Mirroring())
}

func (a *Agent) mirrorMetrics() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "contiv_netplugin_mirrors_from_netmaster", Help: "1 while the cluster's state is mirrored from a netmaster, 0 while it is from the store.",
		}, func() float64 {
			if a.Mirroring().Netmaster != "" {
				return 1
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "contiv_netplugin_mirror_moves_total", Help: "How often it has changed from where the cluster's state is mirrored.",
		}, func() float64 { return float64(a.Mirroring().Moves) }),
	}
}
