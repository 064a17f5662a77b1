package apiserver

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/api"
)

// relayWrite bounds one write to an agent: one that does not read for so long is cut off.
const relayWrite = 10 * time.Second

// relay answers POST /plugin/mirror: a stream both ways, for as long as both ends live.
func (s *streams) relay(w http.ResponseWriter, r *request) {
	begin := time.Now()
	sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		s.router.requests.WithLabelValues("/plugin/mirror", http.MethodPost, strconv.Itoa(sw.status)).Inc()
		s.router.durations.WithLabelValues("/plugin/mirror", http.MethodPost).Observe(time.Since(begin).Seconds())
	}()
	ctx, cancel := context.WithCancel(r.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		defer cancel()
		select {
		case <-s.stopping:
		case <-ctx.Done():
		}
	})
	rc := http.NewResponseController(sw)
	if err := rc.EnableFullDuplex(); err != nil {
		s.router.refuse(sw, r.Request, err)
		return
	}
	_ = rc.SetReadDeadline(time.Time{}) // asks come when they come; not every connection has deadlines
	sw.Header().Set("Content-Type", api.MediaLines)
	err := s.control.Relay(ctx, r.actor, r.Body,
		func() { _ = rc.SetReadDeadline(time.Unix(1, 0)) },
		func(lines []byte) error {
			_ = rc.SetWriteDeadline(time.Now().Add(relayWrite))
			if _, err := sw.Write(lines); err != nil {
				return err
			}
			return rc.Flush()
		})
	s.log.Debug("a host stopped mirroring the store from this netmaster", "client", r.RemoteAddr, "error", err)
}

// relayMetrics tell of the agents that mirror from this netmaster.
func (s *streams) relayMetrics() []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "contiv_netmaster_relayed_hosts", Help: "Hosts that mirror the cluster's state from this netmaster.",
		}, func() float64 { return float64(s.control.Relayed().Streams) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "contiv_netmaster_relay_cut_off_total", Help: "Hosts that were disconnected because they read too slowly.",
		}, func() float64 { return float64(s.control.Relayed().Cut) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "contiv_netmaster_relay_lists_total", Help: "Full lists of the state that were sent to hosts.",
		}, func() float64 { return float64(s.control.Relayed().Lists) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "contiv_netmaster_relay_resumes_total", Help: "Mirrors of hosts that resumed with the changes they had missed.",
		}, func() float64 { return float64(s.control.Relayed().Resumes) }),
	}
}
