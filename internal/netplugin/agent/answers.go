package agent

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/netplugin/l2announce"
)

// askAnswers asks netmasters for which addresses of load balancers this host answers its
// neighbours; run is higher than that of earlier agents here.
func (a *Agent) askAnswers(run int64) l2announce.Ask {
	return func(ctx context.Context, seq uint64, able []netip.Addr) ([]netip.Addr, error) {
		if err := a.named(); err != nil {
			return nil, err
		}
		r := api.AnswerReport{Version: api.HostReportVersion, Host: string(a.cfg.Host), Installation: a.installation.ID, Run: run, Seq: seq, Able: []string{}}
		for _, addr := range able {
			r.Able = append(r.Able, addr.String())
		}
		return a.masters.Answer(ctx, r)
	}
}

// Answering is what GET /inspect/answering tells.
type Answering struct {
	Addresses []l2announce.Held `json:"addresses"`
	Problem   string            `json:"problem,omitempty"`
}

func (a *Agent) getAnswering(w http.ResponseWriter, _ *http.Request) {
	held, problem := a.answers.State()
	if held == nil {
		held = []l2announce.Held{}
	}
	writeJSON(w, http.StatusOK, Answering{held, problem})
}

// answerProblems says in the host's status what keeps it from answering.
func (a *Agent) answerProblems() []compile.Problem {
	_, problem := a.answers.State()
	if problem == "" {
		return nil
	}
	return []compile.Problem{{Object: "addresses of load balancers", Text: "this host does not answer its neighbours for them as it should: " + problem}}
}

func (a *Agent) answerMetrics() []prometheus.Collector {
	return []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "contiv_netplugin_answered_addresses", Help: "Addresses of load balancers for which this host answers ARP and neighbour discovery.",
	}, func() float64 {
		held, _ := a.answers.State()
		return float64(len(held))
	})}
}
