package apiserver

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
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
	answers, err := s.streams.verifyHosts(ctx, r.actor, alive)
	if err != nil {
		return nil, err
	}
	out := api.Verification{Hosts: []api.HostVerification{}}
	for _, h := range hosts {
		v, answered := answers[string(h.Name)]
		switch {
		case answered:
		case h.Alive:
			v.Error = "it did not answer within " + verificationAnswer.String()
		default:
			v.Error = "it is away"
		}
		v.Host = string(h.Name)
		out.Hosts = append(out.Hosts, v)
	}
	return out, nil
}

// verifyHosts has live hosts verify themselves, and waits for all of them, but no longer than
// verificationAnswer.
func (s *streams) verifyHosts(ctx context.Context, a control.Actor, alive map[string]bool) (map[string]api.HostVerification, error) {
	if len(alive) == 0 {
		return nil, nil
	}
	if s.address == "" {
		return nil, model.Errorf(model.ErrUnavailable, "this netmaster has no address at which hosts could answer")
	}
	var mu sync.Mutex
	answers, all := map[string]api.HostVerification{}, make(chan struct{})
	note := func(host string, v api.HostVerification) {
		mu.Lock()
		defer mu.Unlock()
		if _, twice := answers[host]; !alive[host] || twice {
			return
		}
		if answers[host] = v; len(answers) == len(alive) {
			close(all)
		}
	}
	err := s.askAll(ctx, a, control.ReportVerification, len(alive), verificationAnswer, all, &report{
		take: func(host string, body io.Reader) error {
			var v api.HostVerification
			if err := json.NewDecoder(io.LimitReader(body, maxInspection)).Decode(&v); err != nil {
				return model.Errorf(model.ErrInvalid, "a host's verification cannot be read: %v", err)
			}
			v.Differences = v.Differences[:min(len(v.Differences), mostDifferences)]
			note(host, v)
			return nil
		},
		old: func(host string) {
			note(host, api.HostVerification{Error: "its netplugin is older than this netmaster"})
		},
	})
	if err != nil {
		return nil, err
	}
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(answers), nil // a late host may still write
}
