//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// mistakes are all kinds there are.
func mistakes() []*mistake {
	return slices.Concat(daemonMistakes(), flagMistakes(), fileMistakes(), deviceMistakes(), intentMistakes(), restoreMistakes())
}

func intentMistakes() []*mistake {
	control := []string{"master", "store"}
	whole := append([]string{"agent@", "plane@"}, control...)
	return []*mistake{
		{name: "a wrong netctl command", needs: control, do: wrongCommand},
		{name: "a wrong request", needs: control, do: wrongRequest},
		{name: "something in use deleted", needs: control, do: deleteInUse},
		{name: "a rule made, and taken back", needs: append(control, "policy"), do: ruleAndBack},
		{name: "a network made, and taken back", needs: append(control, "networks"), do: networkAndBack},
		{name: "a group's policy changed, and put back", needs: append(control, "policy"), do: groupAndBack},
		{name: "a container comes and goes", needs: whole, do: comesAndGoes},
		{name: "a container goes while netplugin is down", needs: whole, do: goesUnseen},
		{name: "a container is lost by its runtime", needs: whole, do: isLost}, // netplugin releases it
	}
}

var commands = []string{
	"nosuch", "net", "net create", "network create -t blue x", "network create -t blue -s 10.1.1.0/24 again", "network create -t blue -s 10.1.1.0/99 x",
	"network create -t nosuch -s 10.9.0.0/24 x", "network rm -t blue nosuch", "group create -t blue nosuch g", "group create -t blue net", "group rm -t blue nosuch",
	"policy rule-add -t blue -d sideways p r", "policy rule-add -t blue -d in -l tcp -P 99999 p r", "policy rule-add -t blue -d in -P 80 p r",
	"policy rule-add -t blue -d in -l nosuch p r", "policy rule-add -t blue -d in -g nosuch p r", "policy rule-add -t blue -d in -j perhaps p r",
	"policy rule-add -t blue -d in -p 101 p r", "policy rule-add -t blue nosuch r", "policy rule-rm -t blue p nosuch", "tenant create not/a/name",
	"tenant rm nosuch", "global set --fabric-mode nosuch", "global set --vlan-range 5-1", "global set --private-subnet 1.2.3.4/33", "apply -f /nosuch.yaml",
	"get nosuch", "export --nosuch", "monitor --nosuch", "group create -t blue --policy nosuch net x", "network create -t blue -e vxlan -p 99999999 -s 10.9.0.0/24 x",
	"network create -t blue -s 10.9.0.0/24 -g 10.8.0.1 x", "service create", "--netmaster http://127.0.0.1:1 tenant ls", "--netmaster nonsense tenant ls",
	"host rm h1", "host rm nosuch", "host inspect nosuch", "endpoint inspect nosuch", "store nosuch", "backup /nosuch/file", "backup", "status --nosuch",
}

func wrongCommand(ctx context.Context, w *world, _ *testcluster.Host, r *rand.Rand) (undo, error) {
	line := commands[r.IntN(len(commands))]
	w.t.Logf("netctl %s", line)
	out, err := w.Masters.Netctl(ctx, strings.Fields(line)...)
	switch {
	case err == nil:
		return nil, fmt.Errorf("netctl %s succeeded: %s", line, out)
	case len(strings.TrimSpace(out)) < 10:
		return nil, fmt.Errorf("netctl %s says only %q", line, out)
	}
	return nil, nil //nolint:nilnil // nothing to undo
}

var requests = []struct{ method, path, body string }{
	{"POST", "/api/v1/tenants/x/", "{"},
	{"POST", "/api/v1/tenants/x/", "[]"},
	{"POST", "/api/v1/tenants/x/", `{"tenantName":"y"}`},
	{"POST", "/api/v1/tenants/x/", `{"tenantName":["x"]}`},
	{"DELETE", "/api/v1/tenants/nosuch/", ""},
	{"GET", "/api/v1/nosuch/", ""},
	{"POST", "/api/v1/networks/blue:x/", `{"tenantName":"blue","networkName":"x","subnet":"nonsense"}`},
	{"PUT", "/api/v1/rules/blue:p:x/", "\x00\xff"},
	{"POST", "/plugin/createEndpoint", "{}"},
	{"POST", "/plugin/deleteEndpoint", `{"EndpointID":"nosuch"}`},
	{"POST", "/plugin/allocAddress", `{"networkID":"nosuch"}`},
	{"PATCH", "/api/v1/tenants/blue/", "{}"},
	{"DELETE", "/api/v1/tenants/", ""},
	{"POST", "/api/v1/apply", strings.Repeat("[", 2000)},
	{"GET", "/api/v1/tenants/%2e%2e%2f/", ""},
	{"POST", "/api/v1/globals/global/", `{"name":"global","vlans":"x"}`},
}

func wrongRequest(ctx context.Context, w *world, _ *testcluster.Host, r *rand.Rand) (undo, error) {
	q := requests[r.IntN(len(requests))]
	w.t.Logf("%s %s", q.method, q.path)
	req, err := http.NewRequestWithContext(ctx, q.method, w.Masters.MasterURL()+q.path, strings.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	if q.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	c := w.Master.HTTP()
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if resp.StatusCode < 400 || resp.StatusCode >= 500 || len(b) == 0 {
		err = errors.Join(err, fmt.Errorf("%s %s: %s: %q", q.method, q.path, resp.Status, b))
	}
	return nil, err
}

func deleteInUse(ctx context.Context, w *world, _ *testcluster.Host, r *rand.Rand) (undo, error) {
	lines := []string{
		"network rm -t blue net", "group rm -t blue db", "group rm -t blue web", "policy rm -t blue p", "tenant rm blue", "tenant rm red",
		"network rm -t red net", "global set --fwd-mode routing", "global set --private-subnet 172.30.0.0/16",
	}
	line := lines[r.IntN(len(lines))]
	w.t.Logf("netctl %s", line)
	if out, err := w.Masters.Netctl(ctx, strings.Fields(line)...); err == nil {
		return nil, fmt.Errorf("netctl %s succeeded: %s", line, out)
	}
	return nil, nil //nolint:nilnil // nothing to undo
}

// ruleAndBack changes a rule on which no watched traffic depends.
func ruleAndBack(ctx context.Context, w *world, _ *testcluster.Host, r *rand.Rand) (undo, error) {
	rule := []string{
		"-d in -p 20 -l udp -P 9 -j allow p extra", "-d in -p 30 -l tcp -P 9 -g spare -j deny p extra",
		"-d out -p 5 -l tcp -P 9 -j deny p extra", "-d in -p 40 -i 10.9.0.0/16 -j deny p extra",
	}[r.IntN(4)]
	return func(ctx context.Context) error { return w.netctl(ctx, "policy rule-rm -t blue p extra") }, w.netctl(ctx, "policy rule-add -t blue "+rule)
}

func networkAndBack(ctx context.Context, w *world, _ *testcluster.Host, _ *rand.Rand) (undo, error) {
	err := errors.Join(w.netctl(ctx, "network create -t blue -e vxlan -s 10.7.0.0/24 -g 10.7.0.1 extra"), w.netctl(ctx, "group create -t blue extra extras"))
	return func(ctx context.Context) error {
		return errors.Join(w.netctl(ctx, "group rm -t blue extras"), w.netctl(ctx, "network rm -t blue extra"))
	}, err
}

func groupAndBack(ctx context.Context, w *world, _ *testcluster.Host, _ *rand.Rand) (undo, error) {
	return func(ctx context.Context) error { return w.netctl(ctx, "group create -t blue --replace net spare") }, w.netctl(ctx, "group create -t blue --policy p net spare")
}

func comesAndGoes(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	s, err := w.victim(ctx, h)
	if err != nil {
		return nil, err
	}
	back := func(ctx context.Context) error { return w.DelContainer(ctx, s) }
	a, err := w.Container(s.Name)
	if err != nil {
		return back, err
	}
	return back, w.reaches(ctx, "other1", a)
}

func goesUnseen(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	s, err := w.victim(ctx, h)
	if err != nil {
		return nil, err
	}
	if err := h.KillAgent(); err != nil {
		return nil, err
	}
	return nil, errors.Join(w.DelContainer(ctx, s), w.startAgent(ctx, h))
}

// isLost takes a container away without a DEL; GC is how its runtime tells.
func isLost(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	s, err := w.victim(ctx, h)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		var there []string
		for _, a := range w.Containers() {
			if a.Host == h.Name {
				there = append(there, a.Name)
			}
		}
		return w.CNIGC(ctx, h.Name, there...)
	}, w.DropContainer(s.Name)
}
