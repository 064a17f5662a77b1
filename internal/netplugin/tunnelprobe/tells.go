package tunnelprobe

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Err says which hosts do not answer, or not all packets; nil = none.
func (p *Prober) Err() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var none, short, some []string
	most := 0 // of what comes back where packets of full size do not
	size := 0
	for _, of := range p.peers {
		switch of.state {
		case unreachable:
			none = append(none, of.String())
		case lossy:
			some = append(some, fmt.Sprintf("%s %d of the last %d", of, of.lost, of.of))
		case untested, healthy:
		case smallOnly:
			short = append(short, of.String())
			size = max(size, of.size)
			if of.passes > 0 && (most == 0 || of.passes < most) {
				most = of.passes
			}
		}
	}
	var errs []error
	here := Peer{p.Host, p.VTEP}
	if len(none) > 0 {
		errs = append(errs, fmt.Errorf("test packets of the tunnel (UDP port %d) from %s to %s are not answered, so containers there and here may be cut off from each other", p.Port, here, listFew(none)))
	}
	if len(short) > 0 {
		passes := "smaller ones pass"
		if most > 0 {
			passes = fmt.Sprintf("those of %d bytes pass", most)
		}
		errs = append(errs, fmt.Errorf("test packets of %d bytes are lost in the tunnel (UDP port %d) between %s and %s, and %s: connections there may stall", size, p.Port, here, listFew(short), passes))
	}
	if len(some) > 0 {
		errs = append(errs, fmt.Errorf("some test packets of the tunnel (UDP port %d) from %s are lost, so connections there may be slow or fail: to %s", p.Port, here, listFew(some)))
	}
	return errors.Join(errs...)
}

// String names a host to people.
func (p Peer) String() string { return fmt.Sprintf("%s (%s)", p.Name, p.Addr) }

// listFew names the first of many, in order.
func listFew(names []string) string {
	const some = 3
	slices.Sort(names)
	if len(names) <= some {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more (%d hosts)", strings.Join(names[:some], ", "), len(names)-some, len(names))
}

// states counts hosts by what probes have found.
func (p *Prober) states() map[state]int {
	n := map[state]int{healthy: 0, untested: 0, smallOnly: 0, lossy: 0, unreachable: 0}
	if p == nil {
		return n
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range p.peers {
		n[of.state]++
	}
	return n
}

var peersDesc = prometheus.NewDesc("contiv_netplugin_tunnel_peers",
	"Hosts that containers here reach by tunnel, by state of probes: answering, untested, small-only (full-size packets are lost), lossy (some packets are lost), silent (all are lost).",
	[]string{"state"}, nil)

// Describe implements prometheus.Collector.
func (p *Prober) Describe(ch chan<- *prometheus.Desc) { ch <- peersDesc }

// Collect implements prometheus.Collector.
func (p *Prober) Collect(ch chan<- prometheus.Metric) {
	for state, n := range p.states() {
		ch <- prometheus.MustNewConstMetric(peersDesc, prometheus.GaugeValue, float64(n), string(state))
	}
}
