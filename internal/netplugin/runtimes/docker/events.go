package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// eventsRetry is the pause before a stream of events that has ended is asked for
// again, also while the engine is away.
const eventsRetry = time.Second

// followEvents calls wake, until ctx ends, whenever containers of the engine may have
// started, ended, or changed their name or networks: at each such event, and when
// events may have been missed.
func (p *Plugin) followEvents(ctx context.Context, wake func()) {
	said := ""
	for ctx.Err() == nil {
		followed := false
		err := p.engine.events(ctx, func() {
			followed = true
			wake()
		})
		if ctx.Err() != nil {
			return
		}
		text := ""
		if !followed { // else the engine has ended, as engines do
			text = err.Error()
		}
		if text != "" && text != said {
			p.log.Warn("Docker's events cannot be watched; names and labels of containers may be late", "problem", text)
		}
		said = text
		_ = waiting.Pause(ctx, eventsRetry) // the loop sees the end
	}
}

// events calls f once the stream of events has begun, and at each event that
// concerns containers. It returns why the stream has ended, never nil.
func (e *engine) events(ctx context.Context, f func()) error {
	filters, err := json.Marshal(map[string][]string{
		"type": {"container", "network"}, "event": {"start", "die", "rename", "health_status", "destroy", "connect", "disconnect"},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker"+engineVersion+"/events?filters="+url.QueryEscape(string(filters)), nil)
	if err != nil {
		return fmt.Errorf("watch Docker's events: %w", err)
	}
	stream := http.Client{Transport: e.http.Transport} // without the time limit of requests
	resp, err := stream.Do(req)
	if err != nil {
		return model.Errorf(model.ErrUnavailable, "watch Docker's events: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it has ended
	if resp.StatusCode != http.StatusOK {
		return &engineError{resp.StatusCode, fmt.Sprintf("watch Docker's events: Docker answers %d", resp.StatusCode)}
	}
	f()
	for dec := json.NewDecoder(resp.Body); ; {
		var any struct{} // what happened does not matter: all containers are looked at
		if err := dec.Decode(&any); err != nil {
			return model.Errorf(model.ErrUnavailable, "watch Docker's events: %w", err)
		}
		f()
	}
}

// container is a container, as far as its names and services go.
type container struct {
	id, name  string
	labels    map[string]string // never nil
	health    string            // attach.Healthy or attach.Unhealthy
	endpoints []string          // ids
}

// containers lists the containers that a query asks for; without one, the running ones.
func (e *engine) containers(ctx context.Context, query string) ([]container, error) {
	var list []struct {
		ID              string `json:"Id"`
		Names           []string
		Status          string // for people; the result of the health check is here only
		Labels          map[string]string
		NetworkSettings struct {
			Networks map[string]struct {
				EndpointID string
			}
		}
	}
	if err := e.do(ctx, http.MethodGet, "/containers/json"+query, nil, &list); err != nil {
		return nil, err
	}
	out := make([]container, 0, len(list))
	for _, l := range list {
		c := container{id: l.ID, labels: map[string]string{}, health: attach.Healthy}
		if strings.HasSuffix(l.Status, "(unhealthy)") { // such as "Up 5 minutes (unhealthy)"
			c.health = attach.Unhealthy
		}
		maps.Copy(c.labels, l.Labels)
		for _, n := range l.Names { // a link adds a name such as /from/alias
			if name := strings.TrimPrefix(n, "/"); !strings.Contains(name, "/") {
				c.name = name
			}
		}
		for _, n := range l.NetworkSettings.Networks {
			if n.EndpointID != "" {
				c.endpoints = append(c.endpoints, n.EndpointID)
			}
		}
		out = append(out, c)
	}
	return out, nil
}
