package apiserver

import (
	"net/http"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

const (
	// verificationAnswer is how long hosts may take to verify, after the time over which
	// they spread.
	verificationAnswer = 30 * time.Second
	// mostDifferences bounds the differences that one host may report.
	mostDifferences = 64
)

// verification answers GET /api/v1/analysis/verification.
func (s *diagnosis) verification(_ http.ResponseWriter, r *request) (any, error) {
	ctx, cancel := withLongTimeout(r)
	defer cancel()
	hosts, err := s.control.Hosts.List(ctx, r.actor)
	if err != nil {
		return nil, err
	}
	alive := map[string]bool{}
	for _, h := range hosts {
		if h.Alive {
			alive[string(h.Name)] = true
		}
	}
	answers, err := askEach(ctx, s.streams, r.actor, control.MonitorRequest{Report: control.ReportVerification}, alive, verificationAnswer, maxInspection, api.HostVerification{Error: olderNetplugin})
	if err != nil {
		return nil, err
	}
	out := api.Verification{Hosts: []api.HostVerification{}}
	for _, h := range hosts {
		v, answered := answers[string(h.Name)]
		if !answered {
			v.Error = silence(h.Alive, verificationAnswer)
		}
		v.Differences = v.Differences[:min(len(v.Differences), mostDifferences)]
		v.Host = string(h.Name)
		out.Hosts = append(out.Hosts, v)
	}
	return out, nil
}
