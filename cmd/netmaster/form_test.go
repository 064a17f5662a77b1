package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMembersJoinByTheirPodsToken: with the flag a netmaster joins without a token of the cluster, by
// the token of its pod, which it reads each time, at the other netmasters' addresses, and has
// the API server review tokens of that service account. It is refused where it cannot work.
func TestMembersJoinByTheirPodsToken(t *testing.T) {
	log, token := slog.New(slog.DiscardHandler), filepath.Join(t.TempDir(), "token")
	line := func(change ...string) []string {
		return append(strings.Fields("--secure --internal-address 10.9.9.1:9999 --member-name node1 --kubeconfig "+reviews(t)), change...)
	}
	good := []string{"--member-service-account", "ns1/plugin", "--enroll-service-account", "ns1/hosts", "--join", "10.9.9.1:9005,10.9.9.2:9005,10.9.9.3:9005", "--join-token-file", token}
	o, err := parse(t, nil, line(good...)...)
	if err != nil {
		t.Fatal(err)
	}
	if m := o.member(); !slices.Equal(m.Addresses, []string{"10.9.9.2:9005", "10.9.9.3:9005"}) || m.Token != "" || m.Name != "" {
		t.Errorf("it joins at %v by %q, as %q whatever its directory says", m.Addresses, m.Token, m.Name)
	}
	f, err := o.forming(log)
	if err != nil {
		t.Fatal(err)
	}
	if f.Node() != "node1" {
		t.Errorf("its node is %q", f.Node())
	}
	if _, err := f.Token(); err == nil {
		t.Error("there is no token yet, and it has one")
	}
	for _, text := range []string{"first\n", "second"} {
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Token(); err != nil || got != strings.TrimSpace(text) {
			t.Errorf("the token is %q, %v", got, err)
		}
	}
	if node, by, err := f.Review(t.Context(), "a.b.c"); err != nil || node != "node1" || by != "pod ns1/p" {
		t.Errorf("%q by %q, %v", node, by, err)
	}
	good[1], good[3] = "ns1/masters", "ns1/plugin"
	if o, err = parse(t, nil, line(good...)...); err != nil {
		t.Fatal(err)
	}
	if f, err = o.forming(log); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Review(t.Context(), "a.b.c"); err == nil || !strings.Contains(err.Error(), `belongs to "system:serviceaccount:ns1:plugin"`) {
		t.Errorf("a token of hosts is taken: %v", err)
	}
	if o, err = parse(t, nil, line()...); err != nil {
		t.Fatal(err)
	}
	if f, err := o.forming(log); err != nil || f != nil {
		t.Errorf("without the flag: %v, %v", f, err)
	}

	for args, part := range map[string]string{
		"--join-token-file t":                                                                                                "give --member-service-account too",
		"--member-service-account b":                                                                                         "NAMESPACE/NAME",
		"--member-service-account a/b --enroll-service-account a/c":                                                          "give --join and --join-token-file",
		"--member-service-account a/b --enroll-service-account a/c --join 10.9.9.2:1":                                        "give --join and --join-token-file",
		"--member-service-account a/b --join 10.9.9.2:1 --join-token-file t":                                                 "needs --enroll-service-account of the same namespace",
		"--member-service-account a/b --join 10.9.9.2:1 --join-token-file t --enroll-service-account aa/c":                   "of the same namespace",
		"--member-service-account a/b --join 10.9.9.2:1 --join-token-file t --enroll-service-account a/b":                    "service account of their own",
		"--member-service-account a/b --join 10.9.9.2:1 --join-token-file t --enroll-service-account a/c --token x":          "gives another; omit one",
		"--member-service-account a/b --join 10.9.9.2:1 --join-token-file t --enroll-service-account a/c --accept-plain":     "turned so; omit one",
		"--member-service-account a/b --join 10.9.9.2:1 --join-token-file t --enroll-service-account a/c --peer-listen none": "omit one",
		"--member-service-account a/b --consul-endpoints http://10.9.9.2:1":                                                  "is for the embedded etcd",
	} {
		if _, err := parse(t, nil, line(strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v; want %q", args, err, part)
		}
	}
}
