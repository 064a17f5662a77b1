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

// askAnswers asks netmasters for which addresses of load balancers this host answers its
// neighbours; run is higher than earlier agents' here.
func askAnswers(cfg *Config, lease *hostLease, masters *masterclient.Client, run int64) l2announce.Ask {
	return func(ctx context.Context, seq uint64, able []netip.Addr) ([]netip.Addr, error) {
		if err := lease.named(); err != nil {
			return nil, err
		}
		r := api.AnswerReport{Version: api.HostReportVersion, Host: string(cfg.Host), Installation: lease.installation.ID, Run: run, Seq: seq, Able: []string{}}
		for _, addr := range able {
			r.Able = append(r.Able, addr.String())
		}
		return masters.Answer(ctx, r)
	}
}

// Announcing is what GET /inspect/answering tells.
type Announcing struct {
	Addresses []l2announce.Address `json:"addresses"`
	Problem   string               `json:"problem,omitempty"`
}

func (l *l2Announcers) getAnnouncing(w http.ResponseWriter, _ *http.Request) {
	held, problem := l.answers.State()
	if held == nil {
		held = []l2announce.Address{}
	}
	writeJSON(w, http.StatusOK, Announcing{held, problem})
}

// answerProblems says in the host's status what keeps it from answering.
func (l *l2Announcers) answerProblems() []compile.Problem {
	_, problem := l.answers.State()
	if problem == "" {
		return nil
	}
	return []compile.Problem{{Object: "addresses of load balancers", Text: "this host does not answer its neighbours for them as it should: " + problem}}
}

func (l *l2Announcers) answerMetrics() []prometheus.Collector {
	return []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "contiv_netplugin_answered_addresses", Help: "Addresses of load balancers for which this host answers ARP and neighbour discovery.",
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
