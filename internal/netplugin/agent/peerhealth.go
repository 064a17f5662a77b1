package agent

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/peerhealth"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/netplugin/tunnelprobe"
)

// probers test whether other hosts live, and the tunnels to them. Both guard their own state.
type probers struct {
	prober  *peerhealth.Prober  // nil = no host is asked
	tunnels *tunnelprobe.Prober // nil = no tunnel is tested
}

// newProber returns the prober of hosts that are away; nil without a probe.
func newProber(cfg *Config, cluster *statemirror.State) *peerhealth.Prober {
	if cfg.Probe == nil {
		return nil
	}
	return peerhealth.New(peerhealth.Config{Cluster: probedHosts{cfg, cluster}, Ask: cfg.Probe, Log: cfg.Log, Answered: loadPeers(cfg)})
}

// probedHosts implements peerhealth.Cluster by the state mirror and peersFile.
type probedHosts struct {
	cfg     *Config
	cluster *statemirror.State
}

// Peers implements peerhealth.Cluster.
func (h probedHosts) Peers() (peers []peerhealth.Peer, many bool, changed <-chan struct{}) {
	list, many, changed := h.cluster.Hosts.Peers()
	for _, p := range list {
		peers = append(peers, peerhealth.Peer{Name: p.Name, Addr: p.Addr, Away: p.Away})
	}
	return peers, many, changed
}

// SetUnreachable implements peerhealth.Cluster.
func (h probedHosts) SetUnreachable(name model.HostName, yes bool) {
	h.cluster.HostInput.SetUnreachable(name, yes)
}

// Remember implements peerhealth.Cluster.
func (h probedHosts) Remember(answered map[model.HostName]netip.Addr) {
	savePeers(h.cfg, answered)
}

// peersFile, in the state directory, has the hosts that have answered a probe, and where:
// an agent that begins while one of them is dead knows that its silence means something.
const peersFile = "peers.json"

type savedPeers struct {
	Version  int                           `json:"version"` // 1
	Answered map[model.HostName]netip.Addr `json:"answered"`
}

// loadPeers reads peersFile. An unreadable one counts as none: then the hosts are asked
// again.
func loadPeers(cfg *Config) map[model.HostName]netip.Addr {
	var kept savedPeers
	data, err := os.ReadFile(filepath.Join(cfg.StateDir, peersFile))
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		cfg.Log.Warn("the list of hosts that have answered probes cannot be read: they are probed again", "file", peersFile, "error", err)
	}
	if err != nil || kept.Version != 1 {
		return nil
	}
	return kept.Answered
}

func savePeers(cfg *Config, answered map[model.HostName]netip.Addr) {
	if err := durable.WriteJSON(filepath.Join(cfg.StateDir, peersFile), savedPeers{1, answered}); err != nil {
		cfg.Log.Debug("the list of hosts that have answered probes cannot be written", "error", err)
	}
}

// peers counts other hosts by what probes have found.
type peers struct{ of *peerhealth.Prober }

var peersDesc = prometheus.NewDesc("contiv_netplugin_peers",
	"Other hosts, by state: answering (a probe), unanswered (no probe ever), silent (away and answering no probe, so services here send their providers no new connections).",
	[]string{"state"}, nil)

// Describe implements prometheus.Collector.
func (p peers) Describe(ch chan<- *prometheus.Desc) { ch <- peersDesc }

// Collect implements prometheus.Collector.
func (p peers) Collect(ch chan<- prometheus.Metric) {
	answering, unanswered, silent := p.of.States()
	for state, n := range map[string]int{"answering": answering, "unanswered": unanswered, "silent": silent} {
		ch <- prometheus.MustNewConstMetric(peersDesc, prometheus.GaugeValue, float64(n), state)
	}
}

func (p *probers) peerMetrics() []prometheus.Collector {
	if p.prober == nil {
		return nil
	}
	return []prometheus.Collector{peers{p.prober}}
}
