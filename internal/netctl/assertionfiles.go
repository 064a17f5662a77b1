package netctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

var verdicts = columns[api.AssertionVerdict]{
	header: []string{"Tenant", "Name", "State", "Assertion", "Why"},
	row: func(v api.AssertionVerdict) []string {
		a, why := v.Assertion, v.Why
		if why == "" && len(v.SelectNothing) > 0 {
			why = strings.Join(v.SelectNothing, " and ") + " selects no endpoint"
		}
		return []string{a.TenantName, a.AssertionName, v.State, strings.TrimSpace(fmt.Sprintf("%s %s -> %s %s", a.Verdict, a.From, a.To, strings.Join(a.Ports, ","))), why}
	},
	id: func(v api.AssertionVerdict) string { return v.Assertion.ObjectKey() + " " + v.State },
}

func newAssertionTest(base common) *command {
	c := &command{
		name:  "test",
		short: fmt.Sprintf("Test assertions: those of YAML documents, without a cluster, or the cluster's; exits with %d unless all hold", ExitDenied),
		examples: []string{
			"netctl assertion test -f cluster.yaml",
			"netctl assertion test",
		},
	}
	o := newApplyOptions(base, &c.flags)
	o.listFlags(c, "names and states only")
	c.run = bindRun(o, runAssertionTest, nil)
	return c
}

func runAssertionTest(ctx context.Context, o *applyOptions) error {
	if len(o.files) > 0 {
		docs, err := o.documents(ctx)
		if err != nil {
			return err
		}
		n, err := startTrial(ctx)
		if err != nil {
			return err
		}
		defer n.stop()
		o.made = n.client
		if err := n.fill(ctx, o, docs); err != nil {
			return err
		}
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	all, err := client.AssertionVerdicts(ctx)
	if err != nil {
		return err
	}
	if len(o.files) > 0 {
		for i := range all {
			all[i].Assertion.Overridden = "" // by fill
		}
	}
	if err := o.printItems(verdicts.items(all...)); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(v api.AssertionVerdict) bool { return v.State != api.AssertionHolds }) {
		return errDenied
	}
	return nil
}

// trialNetmaster is a netmaster of this machine alone, with a store of its own, that answers one
// command.
type trialNetmaster struct {
	client *api.Client
	cmd    *exec.Cmd
	dir    string
}

// startTrial starts the program netmaster that is beside netctl, or in the PATH.
func startTrial(ctx context.Context) (n *trialNetmaster, err error) {
	program, err := netmasterProgram()
	if err != nil {
		return nil, err
	}
	at, err := freeAddresses(ctx, 3)
	if err != nil {
		return nil, err
	}
	n = &trialNetmaster{}
	if n.dir, err = os.MkdirTemp("", "netctl-assertion-test-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.stop()
		}
	}()
	n.cmd = exec.CommandContext(ctx, program, "--config", "none", "--external-address", at[0], "--agent-address", at[1], "--etcd-listen", at[2],
		"--data-dir", filepath.Join(n.dir, "etcd"), "--peer-listen", "none", "--snapshot-dir", "none")
	n.cmd.Env = []string{"HOME=" + n.dir, "PATH=" + os.Getenv("PATH")}
	n.cmd.Cancel = func() error { return n.cmd.Process.Signal(syscall.SIGTERM) }
	n.cmd.WaitDelay = trialPatience
	log, err := os.Create(filepath.Join(n.dir, "log"))
	if err != nil {
		return nil, err
	}
	n.cmd.Stderr = log
	err = errors.Join(n.cmd.Start(), log.Close()) // the process has it
	if err != nil {
		return nil, err
	}
	if n.client, err = connect(globals{netmaster: "http://" + at[0], override: "netctl assertion test", timeout: trialPatience}); err != nil {
		return nil, err
	}
	patience, end := context.WithTimeout(ctx, trialPatience)
	defer end()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = n.client.Do(patience, http.MethodGet, "/readyz", nil, nil); err == nil {
			return n, nil
		}
		select {
		case <-tick.C:
		case <-patience.Done():
			text, _ := os.ReadFile(filepath.Join(n.dir, "log")) // it is said without
			return nil, fmt.Errorf("%s is not ready after %v: %w\n%s", program, trialPatience, err, text)
		}
	}
}

// trialPatience bounds how long a netmaster may take to start, and to end.
const trialPatience = 30 * time.Second

func netmasterProgram() (string, error) {
	if own, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(own), "netmaster")); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("netmaster")
	if err != nil {
		return "", fmt.Errorf("files are tested by the program netmaster of the same release, beside netctl or in the PATH: %w", err)
	}
	return path, nil
}

func freeAddresses(ctx context.Context, n int) (out []string, err error) {
	for range n {
		l, err := transport.Listen(ctx, "127.0.0.1:0", nil, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // nothing was accepted
		out = append(out, l.Addr().String())
	}
	return out, nil
}

func (n *trialNetmaster) stop() {
	if n.cmd != nil && n.cmd.Process != nil {
		_ = n.cmd.Cancel() // it may have ended
		_ = n.cmd.Wait()   // it was asked to end
	}
	_ = os.RemoveAll(n.dir) // a directory for temporary files
}

// fill applies documents to a netmaster without hosts. In place of containers it has the
// documents' endpoints, and some that are made up.
func (n *trialNetmaster) fill(ctx context.Context, o *applyOptions, docs []document) error {
	var objects, asserted []document
	var endpoints []api.CreateEndpointRequest
	for _, d := range docs {
		switch d.kind {
		case endpointKind:
			var e api.CreateEndpointRequest
			if err := d.into(&e); err != nil {
				return err
			}
			endpoints = append(endpoints, e)
		case assertions.name:
			asserted = append(asserted, d)
		default:
			objects = append(objects, d)
		}
	}
	made, err := madeUp(objects, asserted)
	if err != nil {
		return err
	}
	if _, err := o.sendDocuments(ctx, objects, false); err != nil {
		return err
	}
	for i, e := range append(endpoints, made...) {
		e.ConfigEP.Host = cmp.Or(e.ConfigEP.Host, "test")
		err := n.client.Do(ctx, http.MethodPost, "/plugin/createEndpoint", e, nil)
		if err != nil && i < len(endpoints) {
			return fmt.Errorf("endpoint %s: %w", e.EndpointID, err)
		}
		if err != nil { // a full network, for example
			if _, err := fmt.Fprintf(o.stderr, "note: %s of tenant %s has no endpoint in this test: %v\n", cmp.Or(e.ServiceName, e.NetworkName), e.TenantName, err); err != nil {
				return err
			}
		}
	}
	_, err = o.sendDocuments(ctx, asserted, false)
	return err
}

// madeUp are two endpoints for each network, for each group, and for the labels that an assertion
// names in each network of its tenant.
func madeUp(objects, asserted []document) (out []api.CreateEndpointRequest, err error) {
	add := func(tenant, network, group string, labels map[string]string) {
		for range 2 {
			id := fmt.Sprint("test-", len(out)+1)
			out = append(out, api.CreateEndpointRequest{TenantName: tenant, NetworkName: network, ServiceName: group, EndpointID: id, ConfigEP: api.ConfigEP{Container: id, Labels: labels}})
		}
	}
	networks := map[string][]string{} // by tenant
	for _, d := range objects {
		switch d.kind {
		case "network":
			var n api.Network
			err = errors.Join(err, d.into(&n))
			networks[n.TenantName] = append(networks[n.TenantName], n.NetworkName)
			add(n.TenantName, n.NetworkName, "", nil)
		case "endpointGroup":
			var g api.EndpointGroup
			err = errors.Join(err, d.into(&g))
			add(g.TenantName, g.NetworkName, g.GroupName, nil)
		}
	}
	for _, d := range asserted {
		var a api.Assertion
		err = errors.Join(err, d.into(&a))
		for _, side := range []string{a.From, a.To} {
			for _, network := range networks[a.TenantName] {
				if labels := labelsIn(side); labels != nil {
					add(a.TenantName, network, "", labels)
				}
			}
		}
	}
	return out, err
}

// labelsIn are the labels KEY=VALUE,... of a side; nil = it is something else.
func labelsIn(side string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(side, ",") {
		k, v, is := strings.Cut(pair, "=")
		if !is {
			return nil
		}
		out[k] = v
	}
	return out
}

// into reads the object of a document.
func (d document) into(v any) error {
	text, err := json.Marshal(d.fields)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return d.errorf("%w", err)
	}
	return nil
}
