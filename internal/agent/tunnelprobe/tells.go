package tunnelprobe

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Err says which hosts are cut off; nil = none is.
func (p *Prober) Err() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var silent, short []string
	most := 0 // of what comes back where packets of full size do not
	size := 0
	for _, of := range p.peers {
		switch {
		case of.small.cut:
			silent = append(silent, of.String())
		case of.full.cut:
			short = append(short, of.String())
			size = max(size, of.size)
			if of.passes > 0 && (most == 0 || of.passes < most) {
				most = of.passes
			}
		}
	}
	var errs []error
	here := Peer{p.Host, p.VTEP}
	if len(silent) > 0 {
		errs = append(errs, fmt.Errorf("no tunnel packet (UDP port %d) comes back to %s from %s: containers there and here are cut off from each other", p.Port, here, few(silent)))
	}
	if len(short) > 0 {
		passes := "smaller ones pass"
		if most > 0 {
			passes = fmt.Sprintf("those of %d bytes pass", most)
		}
		errs = append(errs, fmt.Errorf("packets of %d bytes are lost in the tunnel (UDP port %d) between %s and %s, and %s: connections there stall", size, p.Port, here, few(short), passes))
	}
	return errors.Join(errs...)
}

// String names a host to people.
func (p Peer) String() string { return fmt.Sprintf("%s (%s)", p.Name, p.Addr) }

// few names the first of many, in order.
func few(names []string) string {
	const some = 3
	slices.Sort(names)
	if len(names) <= some {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more (%d hosts)", strings.Join(names[:some], ", "), len(names)-some, len(names))
}

// states counts hosts by what probes have found.
func (p *Prober) states() map[string]int {
	n := map[string]int{"answering": 0, "untested": 0, "small-only": 0, "silent": 0}
	if p == nil {
		return n
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range p.peers {
		switch {
		case of.small.cut:
			n["silent"]++
		case of.full.cut:
			n["small-only"]++
		case of.small.answered && of.full.answered:
			n["answering"]++
		default:
			n["untested"]++
		}
	}
	return n
}

var peersDesc = prometheus.NewDesc("contiv_netplugin_tunnel_peers",
	"Hosts to which packets of this host's containers go by tunnel, by what probes have found: answering, untested (none answered or lost yet), small-only (packets of full size are lost), silent (all are lost).",
	[]string{"state"}, nil)

// Describe implements prometheus.Collector.
func (p *Prober) Describe(ch chan<- *prometheus.Desc) { ch <- peersDesc }

// Collect implements prometheus.Collector.
func (p *Prober) Collect(ch chan<- prometheus.Metric) {
	for state, n := range p.states() {
		ch <- prometheus.MustNewConstMetric(peersDesc, prometheus.GaugeValue, float64(n), state)
	}
}
