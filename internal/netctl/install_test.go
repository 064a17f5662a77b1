package netctl

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/netctl/installer"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
)

// fakeMachine passes its checks, or not, and records what is done on it.
type fakeMachine struct {
	bad     bool
	plan    installer.Plan // that was checked
	started []installer.Plan
}

func (m *fakeMachine) Check(_ context.Context, p *installer.Plan) []installer.Finding {
	if !p.Address.IsValid() {
		p.Address = netip.MustParseAddr("10.0.0.9")
	}
	m.plan = *p
	if m.bad {
		return []installer.Finding{{Check: "kernel", Severity: installer.Error, Text: "too old", Remedy: "upgrade it"}}
	}
	return []installer.Finding{{Check: "kernel", Severity: installer.OK, Text: "6.1"}}
}

func (*fakeMachine) Steps(p installer.Plan) []string { return []string{"start netplugin of " + p.Host} }

func (*fakeMachine) StartNetmaster(context.Context, installer.Plan) error {
	return errors.New("there is no netmaster here")
}

func (m *fakeMachine) StartNetplugin(_ context.Context, p installer.Plan) error {
	m.started = append(m.started, p)
	return nil
}

func TestInstallJoinsAMachineOrSaysWhyNot(t *testing.T) {
	token := jointoken.New([]string{"10.0.0.1:9005", "10.0.0.3:9005"}, jointoken.Fingerprint{1})
	token.Host = "h2"
	plan, err := installer.Joining(token.Text())
	if err != nil {
		t.Fatal(err)
	}
	plan.Address = netip.MustParseAddr("10.0.0.2")
	join := "--address 10.0.0.2 --token " + token.Text()
	for name, tt := range map[string]struct {
		args    string
		bad     bool
		started bool
		out     string // that is printed
		err     string
		code    int
	}{
		"a host":                       {args: join, started: true, out: "This machine is host h2 of the cluster"},
		"a check":                      {args: join + " --check", out: "h2, becomes a host by these steps:\n  start netplugin of h2\n"},
		"a check that finds something": {args: join + " --check", bad: true, out: "too old", err: "there are problems", code: ExitUnhealthy},
		"a machine that cannot be one": {args: join, bad: true, out: "upgrade it", err: "nothing was changed", code: ExitFailure},
		"JSON":                         {args: join + " --json", started: true, out: `"done": true`},
		"a token that is cut off":      {args: "--token contiv-join-x", err: "--token: the join token is invalid or incomplete", code: ExitUsage},
		"another host's token":         {args: join + " --host h3", err: "--host h3: the token is for host h2", code: ExitUsage},
		"the same host's token":        {args: join + " --host h2", started: true},
		"no address":                   {args: "--address here", err: `--address "here": must be an IPv4 or IPv6 address`, code: ExitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			m := &fakeMachine{bad: tt.bad}
			var out bytes.Buffer
			c := newInstall(common{terminal: terminal{out: &out}, session: &session{}}, m)
			c.globals = &globals{}
			inv, err := c.resolve(strings.Fields(tt.args))
			if err == nil {
				err = inv.execute(t.Context(), &out)
			}
			if got := exitCode(err); got != tt.code || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("exit code %d, %v; want %d, %s", got, err, tt.code, tt.err)
			}
			if !strings.Contains(out.String(), tt.out) {
				t.Errorf("it printed %q, want %q", out.String(), tt.out)
			}
			if started := len(m.started) > 0; started != tt.started {
				t.Errorf("netplugin was started: %v", started)
			}
			if _, usage := errors.AsType[*flags.UsageError](err); !usage {
				if d := cmp.Diff(plan, m.plan, cmpopts.EquateComparable(netip.Addr{}), cmp.AllowUnexported(installer.Plan{})); d != "" {
					t.Errorf("the plan (-want +got): %s", d)
				}
			}
		})
	}
}
