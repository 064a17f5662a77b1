package agent

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/netplugin/l2announce"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
)

// requestL2Addresses asks netmasters for which addresses of load balancers this host answers its
// neighbours; run is higher than earlier agents' here.
func requestL2Addresses(cfg *Config, lease *hostLease, masters *masterclient.Client, run int64) l2announce.RequestAddresses {
	return func(ctx context.Context, seq uint64, able []netip.Addr) ([]netip.Addr, error) {
		if err := lease.checkName(); err != nil {
			return nil, err
		}
		r := api.L2AnnouncerReport{Version: api.HostReportVersion, Host: string(cfg.Host), Installation: lease.installation.ID, Run: run, Seq: seq, Able: []string{}}
		for _, addr := range able {
			r.Able = append(r.Able, addr.String())
		}
		return masters.RequestL2Addresses(ctx, r)
	}
}

// L2Announcements is what GET /inspect/answering tells.
type L2Announcements struct {
	Addresses []l2announce.Address `json:"addresses"`
	Problem   string               `json:"problem,omitempty"`
}

func (l *l2Announcers) getL2Announcements(w http.ResponseWriter, _ *http.Request) {
	held, problem := l.answers.State()
	if held == nil {
		held = []l2announce.Address{}
	}
	writeJSON(w, http.StatusOK, L2Announcements{held, problem})
}

// problems says in the host's status what keeps it from answering.
func (l *l2Announcers) problems() []compile.Problem {
	_, problem := l.answers.State()
	if problem == "" {
		return nil
	}
	return []compile.Problem{{Object: "addresses of load balancers", Text: "this host does not answer its neighbours for them as it should: " + problem}}
}

func (l *l2Announcers) metrics() []prometheus.Collector {
	return []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "contiv_netplugin_answered_addresses", Help: "Load balancer addresses for which this host answers ARP and neighbour discovery.",
	}, func() float64 {
		held, _ := l.answers.State()
		return float64(len(held))
	})}
}

// l2Announcers tell neighbours on this host's networks where addresses are: load balancers'
// addresses to the uplinks' networks, endpoints to VLANs, and other MACs of known addresses
// to endpoints. Agent.pass calls them; the state of announceVLAN and announceToNeighbours is
// the runner's goroutine's alone.
type l2Announcers struct {
	memberships driver.Memberships // sends to endpoints; nil = the driver cannot
	log         *slog.Logger
	answers     *l2announce.L2Announcer
	announcer   *l2announce.Announcer
	announced   announced
	macs        macTable
}
