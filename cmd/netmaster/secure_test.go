package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSecureIsRefusedBesideContradictions: --secure lets tokens in, serves the store where hosts reach it, and
// is refused beside what contradicts it.
func TestSecureIsRefusedBesideContradictions(t *testing.T) {
	o, err := parse(t, nil, "--secure", "--internal-address", "10.9.9.1:9999", "--join-address", "master1:9005", "--allowed-hosts", "contiv.example.com")
	if err != nil {
		t.Fatal(err)
	}
	names := o.member().Secure
	for _, want := range []string{"10.9.9.1", "127.0.0.1", "localhost", "master1", "contiv.example.com"} {
		if !slices.Contains(names, want) {
			t.Errorf("its certificate is not for %s: %v", want, names)
		}
	}
	if !o.access.tokens || o.etcdListen != "10.9.9.1:2379" || o.member().Spare {
		t.Errorf("tokens %v, store at %s, ports spare %v", o.access.tokens, o.etcdListen, o.member().Spare)
	}
	for listen, want := range map[string]string{"": "127.0.0.1:2379", "10.9.9.1:99": "10.9.9.1:99"} { // where it was plain before, and nowhere else
		args := []string{"--secure", "--accept-plain", "--internal-address", "10.9.9.1:9999"}
		if listen != "" {
			args = append(args, "--etcd-listen", listen)
		}
		if o, err := parse(t, nil, args...); err != nil || !slices.Equal(o.member().Plain, []string{want}) || o.scheme() != "http" {
			t.Errorf("plain at %v, by %s, %v", o.member().Plain, o.scheme(), err)
		}
	}
	if o, err := parse(t, nil, "--secure", "--etcd-listen", "10.9.9.1:99"); err != nil || o.member().Plain != nil {
		t.Errorf("plain at %v, %v", o.member().Plain, err)
	}
	if o, err := parse(t, nil, "--internal-address", "10.9.9.1:9999"); err != nil || o.member().Secure != nil {
		t.Errorf("without it: %v, %v", o.member().Secure, err)
	}
	relative, err := filepath.Abs("x/audit")
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{ // where changes are recorded
		"--secure":                             "/var/lib/contiv/etcd/audit",
		"--secure --data-dir /x":               "/x/audit",
		"--secure --data-dir x":                relative,
		"--secure --accept-plain":              "/var/lib/contiv/etcd/audit",
		"--secure --audit-dir /var/log/contiv": "/var/log/contiv",
		"--secure --audit-dir none":            "",
		"--data-dir /x":                        "",
	} {
		if o, err := parse(t, nil, append(strings.Fields(line), "--internal-address", "10.9.9.1:9999")...); err != nil || o.access.auditDir != want {
			t.Errorf("%s: changes are recorded in %q, %v; want %q", line, o.access.auditDir, err, want)
		}
	}
	for line, part := range map[string]string{
		"--secure --tls-dir /x":                         "--tls-dir",
		"--accept-plain":                                "give --secure too",
		"--secure --peer-listen none":                   "is none",
		"--secure --consul-endpoints http://10.9.9.9:1": "embedded etcd",
		"--secure --store-tls-dir /x --tokens":          "--store-tls-dir",
		"--tokens --internal-address 10.9.9.1:9999":     "--secure",
	} {
		if _, err := parse(t, nil, strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v; want %q", line, err, part)
		}
	}
}
