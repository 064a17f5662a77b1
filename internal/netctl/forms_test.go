package netctl

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// Flags that ask for different output are refused before anything is asked.
func TestContradictoryOutputFlagsAreRefused(t *testing.T) {
	m := newFakeMaster(t)
	furnish(m)
	for line, want := range map[string]string{
		"network ls -q -o json":            "flags --output json and --quiet ask for different output; give one of them",
		"network ls -j -o yaml":            "flags --output yaml and --json ask for different output; give one of them",
		"network ls -j -q":                 "flags --json and --quiet ask for different output; give one of them",
		"get networks -o wide -j":          "flags --output wide and --json ask for different output; give one of them",
		"network inspect -t blue -j -q x":  "flags --json and --quiet ask for different output; give one of them",
		"tenant create -j -q x":            "flags --json and --quiet ask for different output; give one of them",
		"status --json --quiet":            "flags --json and --quiet ask for different output; give one of them",
		"network ls -t blue --all":         "flags --tenant and --all ask for different objects; give one of them",
		"get network backend --all":        "flag --all shows those of all tenants, and backend names one object; give one of them",
		"network inspect -t red blue:back": `flag --tenant "red": "blue:back" is of tenant blue`,
	} {
		before := len(m.requests)
		got := netctl(t, m.url, strings.Fields(line)...)
		if got.code != ExitUsage || !strings.HasPrefix(got.errOut, "netctl: "+want+"\n") || len(m.requests) > before {
			t.Errorf("netctl %s: %+v", line, got)
		}
	}
	for _, line := range []string{"network ls -j -o json", "network ls -q -o name", "network ls --json=false -q", "network ls -t blue -o wide"} {
		if got := netctl(t, m.url, strings.Fields(line)...); got.code != ExitOK {
			t.Errorf("netctl %s: %+v", line, got)
		}
	}
}

// What -o name prints, get, inspect and rm take: with --all, and of endpoints always, the
// tenant is part of it.
func TestNamesCanBePipedBack(t *testing.T) {
	url := startNetmaster(t)
	for _, line := range []string{
		"tenant create blue", "network create -t blue -s 10.1.1.0/24 backend", "network create -s 10.2.1.0/24 backend", "policy create -t blue in",
		"policy rule-add -t blue in http --protocol tcp --port 80", "group create -t blue -p in backend web", "apply -f testdata/endpoint.yaml",
	} {
		if got := netctl(t, url, strings.Fields(line)...); got.code != ExitOK {
			t.Fatalf("netctl %s: %+v", line, got)
		}
	}
	if got := netctl(t, url, "get", "networks", "--all", "-o", "name"); got.out != "blue:backend\ndefault:backend\n" {
		t.Errorf("%+v", got)
	}
	if got, want := netctl(t, url, "get", "endpoint", "e1", "-o", "name").out, netctl(t, url, "endpoint", "ls", "-o", "name").out; got != want || got != "blue:backend:e1\n" {
		t.Errorf("get endpoint prints %q, endpoint ls %q", got, want)
	}
	for _, k := range append(objectKinds(), readOnlyKinds()...) {
		all := "--all"
		if !k.perTenant {
			all = "--tenant=default"
		}
		for name := range strings.Lines(netctl(t, url, "get", k.name, all, "-o", "name").out) {
			name = strings.TrimSpace(name)
			if got := netctl(t, url, "get", k.name, name, "-o", "name"); got.code != ExitOK {
				t.Errorf("get %s %s: %+v", k.name, name, got)
			}
			if got := netctl(t, url, k.aliases[0], "inspect", name); got.code != ExitOK && k.name != "rule" && !strings.Contains(got.errOut, "unknown command") {
				t.Errorf("%s inspect %s: %+v", k.aliases[0], name, got)
			}
		}
	}
	says(t, netctl(t, url, "network", "rm", "default:backend"), ExitOK, "Deleted network default:backend\n")
}

// No form of any kind has the syntax of Go's values, also not where something is empty.
func TestNoFormShowsGoSyntax(t *testing.T) {
	url := startNetmaster(t)
	for _, line := range []string{
		"tenant create blue", "network create -t blue -s 10.1.1.0/24 backend", "policy create -t blue in", "policy rule-add -t blue in http --protocol tcp --port 80",
		"group create -t blue -p in backend web", "netprofile create -t blue gold", "network-policy create -t blue --default-in deny closed", "app-profile create -t blue -g web shop",
		"service create -t blue -s backend -l app=web -p 80:8080:TCP front", "external-contracts create -t blue -p -a uni/tn-common/brc-web spare", "aci-gw set -d dom", "apply -f testdata/endpoint.yaml",
	} {
		if got := netctl(t, url, strings.Fields(line)...); got.code != ExitOK {
			t.Fatalf("netctl %s: %+v", line, got)
		}
	}
	goSyntax := regexp.MustCompile(`map\[|\[\]string|<nil>|0x[0-9a-f]|&\{|%!|\{\}\]`)
	check := func(args ...string) {
		t.Helper()
		got := netctl(t, url, args...)
		if got.code != ExitOK && got.code != ExitUnhealthy || goSyntax.MatchString(got.out+got.errOut) {
			t.Errorf("netctl %s: %+v", strings.Join(args, " "), got)
		}
	}
	for _, k := range append(objectKinds(), readOnlyKinds()...) {
		for _, form := range forms {
			args := []string{"get", k.name, "-o", form}
			if k.perTenant {
				args = append(args, "--all")
			}
			check(args...)
		}
	}
	for _, line := range []string{
		"endpoint ls -o yaml", "endpoint ls -o json", "endpoint inspect e1", "network inspect blue:backend", "group inspect blue:web", "tenant inspect blue", "policy inspect blue:in",
		"service inspect blue:front", "network-policy inspect blue:closed", "export --in-use", "export --in-use --json", "status", "status --json", "global info", "host ls",
	} {
		check(strings.Fields(line)...)
	}
	var of struct{ Oper map[string]any }
	if err := json.Unmarshal([]byte(netctl(t, url, "endpoint", "inspect", "e1").out), &of); err != nil || of.Oper["labels"] != nil {
		t.Errorf("labels in the form of 1.x: %v, %v", of, err)
	}
}

// A list prints more with -o wide, but those of noWider.
func TestWideShowsMore(t *testing.T) {
	url := startNetmaster(t)
	for _, k := range append(objectKinds(), readOnlyKinds()...) {
		table, wide := netctl(t, url, "get", k.name), netctl(t, url, "get", k.name, "-o", "wide")
		more := len(firstLine(wide.out)) > len(firstLine(table.out))
		if none := noWider[k.name]; more == none {
			t.Errorf("get %s -o wide shows more: %v", k.name, more)
		}
	}
}

func firstLine(s string) string { line, _, _ := strings.Cut(s, "\n"); return line }

// noWider are the kinds whose table shows all that is of use.
var noWider = map[string]bool{"rule": true, "appProfile": true, "aciGw": true, "networkPolicy": true}

// A value that is empty is refused with its flag's name before anything is asked.
func TestEmptyValuesAreRefused(t *testing.T) {
	m := newFakeMaster(t)
	for _, args := range [][]string{
		{"network", "ls", "-t", ""},
		{"network", "create", "-t", " ", "-s", "10.1.1.0/24", "n"},
		{"network", "create", "--subnet", "", "n"},
		{"group", "create", "-p", "a,", "n", "g"},
		{"--token-file", "", "tenant", "ls"},
		{"--netmaster", "", "tenant", "ls"},
		{"token", "create", "anna", "--role", ""},
		{"login", "--token="},
		{"global", "set", "--vlan-range", ""},
		{"network-policy", "create", "--group", "", "--default-in", "deny", "p"},
		{"monitor", "--from", ""},
		{"bugtool", "--host", "", "x.tar.gz"},
	} {
		got := netctl(t, m.url, args...)
		if got.code != ExitUsage || !strings.HasPrefix(got.errOut, "netctl: flag --") || len(m.requests) > 0 {
			t.Errorf("netctl %q: %+v, asked %q", args, got, m.requests)
		}
	}
}

// An error names the flag that was typed, not the field on the wire, and repeats a number
// as it was written.
func TestErrorsNameFlags(t *testing.T) {
	url := startNetmaster(t)
	for line, want := range map[string]string{
		"global set --vlan-range 7-5":                                     `--vlan-range "7-5": `,
		"global set --fabric-mode x":                                      `--fabric-mode "x": `,
		"global set --private-subnet 10.0.0.0/24":                         `--private-subnet "10.0.0.0/24": `,
		"global set --tenant-prefixes x":                                  `--tenant-prefixes`,
		"global set --fwd-mode sideways --confirm-within 30s":             `--fwd-mode "sideways": `,
		"network create --pkt-tag 99999999999 -s 10.1.1.0/24 n":           `--pkt-tag "99999999999": `,
		"network create --pkt-tag 100000000000000000000 -s 10.1.1.0/24 n": `flag --pkt-tag "100000000000000000000": is too big a number`,
		"network create --encap x -s 10.1.1.0/24 n":                       `--encap "x": `,
		"network create -t no_such -s 10.1.1.0/24 n":                      `--tenant "no_such": `,
		"netprofile create --bandwidth much p":                            `--bandwidth "much": `,
		"service create -s n -l app -p 80:80:TCP x":                       `--selector`,
		"token create anna --role guest":                                  `token`,
		"network-policy create --group a_b --default-in deny p":           `--group "a_b": `,
		"network-policy create --label a_=b --default-in deny p":          `--label "a_": `,
		"global set --fwd-mode routing --confirm-within 1s":               `--confirm-within "1s": `,
		"apply --confirm-within 2h -f testdata/endpoint.yaml":             `--confirm-within "2h0m0s": `,
		"endpoint ls -t nosuch":                                           `netctl: tenant "nosuch" does not exist`,
		"monitor --from a_b":                                              `--from "a_b": `,
		"policy rule-add --protocol tcp --port 70000 p r":                 `--port "70000": `,
		"apply -f testdata/bigtag.yaml":                                   `pktTag "100000000000000000000": `,
	} {
		got := netctl(t, url, strings.Fields(line)...)
		if got.code == ExitOK || !strings.Contains(got.errOut, want) {
			t.Errorf("netctl %s: %+v", line, got)
		}
	}
}

// TestEachFaultNamesItsFlag: of several faults in one sentence each names its flag.
func TestEachFaultNamesItsFlag(t *testing.T) {
	url := startNetmaster(t)
	for _, line := range []string{"policy create p", "policy rule-add p r", "network create -s 10.1.1.0/24 n"} {
		if got := netctl(t, url, strings.Fields(line)...); got.code != ExitOK {
			t.Fatalf("%s: %+v", line, got)
		}
	}
	for line, want := range map[string][]string{
		"policy rule-add --protocol tcp --port 80 --from-ip-address 10.1.1.0/24 p r": {`--protocol "tcp": `, `; --port "80": `, `; --from-ip-address "10.1.1.0/24": `},
		"network create -s 10.2.0.0/16 -g 10.2.0.1 n":                                {`--subnet "10.2.0.0/16": `, `; --gateway "10.2.0.1": `},
		"network-policy create np":                                                   {`--rule "": must not be empty`},
	} {
		got := netctl(t, url, strings.Fields(line)...)
		for _, part := range want {
			if !strings.Contains(got.errOut, part) {
				t.Errorf("netctl %s: %+v, want %s", line, got, part)
			}
		}
	}
}

// A document that leaves empty which object it is of is refused by apply, diff and delete,
// with the field's name, and changes nothing.
func TestDocumentsWithoutANameAreRefused(t *testing.T) {
	url := startNetmaster(t)
	for text, field := range map[string]string{
		"{kind: network, tenantName: \"\", networkName: n, subnet: 10.1.1.0/24}\n":        "tenantName",
		"{kind: network, tenantName: default, networkName: \" \", subnet: 10.1.1.0/24}\n": "networkName",
		"{kind: policy, tenantName: \"\", policyName: p}\n":                               "tenantName",
		"{kind: tenant, tenantName: \"\"}\n":                                              "tenantName",
		"{kind: rule, tenantName: default, policyName: \"\", ruleId: r}\n":                "policyName",
	} {
		file := documentsOf(t, text)
		for _, command := range []string{"apply", "diff", "delete"} {
			if got := netctl(t, url, command, "-f", file); got.code != ExitFailure || got.out != "" || !strings.Contains(got.errOut, field) {
				t.Errorf("%s of %s: %+v", command, text, got)
			}
		}
	}
	says(t, netctl(t, url, "export", "-q"), ExitOK, netctl(t, startNetmaster(t), "export", "-q").out)
}
