package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// engine is a Docker engine's HTTP interface, as far as networks need it. It
// works with every engine since API 1.24 (Docker 1.12).
type engine struct {
	http *http.Client
}

const (
	engineVersion = "/v1.24"
	engineTimeout = 30 * time.Second
	maxEngine     = 64 << 20
)

// ParseEndpoint checks an engine's address.
func ParseEndpoint(s string) (path string, err error) {
	path, ok := strings.CutPrefix(s, "unix://")
	if !ok || !strings.HasPrefix(path, "/") {
		return "", model.InvalidField("engine", s, "must be unix:///path of the engine's socket")
	}
	return path, nil
}

func newEngine(endpoint string) (*engine, error) {
	path, err := ParseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	return &engine{http: &http.Client{
		Timeout: engineTimeout,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", path)
			},
			MaxIdleConns: 2, IdleConnTimeout: time.Minute,
		},
	}}, nil
}

func (e *engine) close() { e.http.CloseIdleConnections() }

// engineError is an answer other than success.
type engineError struct {
	status int
	text   string
}

func (e *engineError) Error() string { return e.text }

func (e *engine) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+engineVersion+path, body)
	if err != nil {
		return fmt.Errorf("ask Docker: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return model.Errorf(model.ErrUnavailable, "ask Docker: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // the body has been read
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxEngine))
	if err != nil {
		return model.Errorf(model.ErrUnavailable, "read Docker's answer: %w", err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		var m struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(data, &m) != nil || m.Message == "" {
			m.Message = strings.TrimSpace(string(data))
		}
		return &engineError{resp.StatusCode, fmt.Sprintf("Docker answers %d: %s", resp.StatusCode, m.Message)}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("decode Docker's answer: %w", err)
	}
	return nil
}

// engineNetwork is a network of the engine.
type engineNetwork struct {
	ID      string `json:"Id"`
	Name    string
	Driver  string
	Scope   string // local, global or swarm
	Labels  map[string]string
	Options map[string]string
	IPAM    engineIPAM
}

type engineIPAM struct {
	Driver  string
	Options map[string]string `json:",omitempty"`
	Config  []engineSubnet
}

type engineSubnet struct {
	Subnet  string
	Gateway string `json:",omitempty"`
}

// networks lists the networks of a driver.
func (e *engine) networks(ctx context.Context, driver string) ([]engineNetwork, error) {
	filters, err := json.Marshal(map[string][]string{"driver": {driver}})
	if err != nil {
		return nil, err
	}
	var all, out []engineNetwork
	if err := e.do(ctx, http.MethodGet, "/networks?filters="+url.QueryEscape(string(filters)), nil, &all); err != nil {
		return nil, err
	}
	for _, n := range all {
		if n.Driver == driver { // old engines ignore the filter
			out = append(out, n)
		}
	}
	return out, nil
}

type createRequest struct {
	Name           string
	CheckDuplicate bool
	Driver         string
	EnableIPv6     bool
	Scope          string `json:",omitempty"` // empty = as the driver says
	Attachable     bool   `json:",omitempty"` // docker run may use a swarm's network
	IPAM           engineIPAM
	Options        map[string]string
	Labels         map[string]string
}

func (e *engine) create(ctx context.Context, r createRequest) (id string, err error) {
	var out struct {
		ID string `json:"Id"`
	}
	err = e.do(ctx, http.MethodPost, "/networks/create", r, &out)
	return out.ID, err
}

func (e *engine) remove(ctx context.Context, id string) error {
	return e.do(ctx, http.MethodDelete, "/networks/"+url.PathEscape(id), nil, nil)
}

// swarm reports whether the engine manages a swarm.
func (e *engine) swarm(ctx context.Context) (state string, manager bool, err error) {
	var out struct {
		Swarm struct {
			LocalNodeState   string
			ControlAvailable bool
		}
	}
	err = e.do(ctx, http.MethodGet, "/info", nil, &out)
	return out.Swarm.LocalNodeState, out.Swarm.ControlAvailable, err
}

// endpoints lists the endpoint ids of all running containers.
func (e *engine) endpoints(ctx context.Context) (map[string]bool, error) {
	var list []struct {
		NetworkSettings struct {
			Networks map[string]struct {
				EndpointID string
			}
		}
	}
	if err := e.do(ctx, http.MethodGet, "/containers/json", nil, &list); err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, c := range list {
		for _, n := range c.NetworkSettings.Networks {
			if n.EndpointID != "" {
				out[n.EndpointID] = true
			}
		}
	}
	return out, nil
}
