package server

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni"
)

// compareAddrs lets cmp look at addresses by value.
var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

// Configuration and CNI_ARGS become one request: arguments override the
// configuration, the most specific addresses win.
func TestArgumentsOverrideConfiguration(t *testing.T) {
	addr := netip.MustParseAddr
	base := attach.Request{
		Key: attach.Key{Container: "c1", IfName: "eth0"}, Netns: "/ns", Source: attach.SourceCNI, Config: "n",
	}
	with := func(edit func(*attach.Request)) attach.Request {
		r := base
		edit(&r)
		return r
	}
	for _, test := range []struct {
		name, conf, args string
		want             attach.Request
	}{
		{"least", `{"name":"n"}`, "", base},
		{"the file of 1.x's installation", `{"cniVersion":"0.1.0","name":"n","type":"contivk8s"}`, "", base},
		{"keys of ours", `{"name":"n","tenant":"t","network":"net","group":"g","mtu":1400,"labels":{"a":"b"}}`, "", with(func(r *attach.Request) {
			r.Tenant, r.Network, r.Group, r.MTU, r.Labels = "t", "net", "g", 1400, map[string]string{"a": "b"}
		})},
		{"arguments override", `{"name":"n","tenant":"t","network":"net","group":"g"}`, "TENANT=u;NETWORK=other;GROUP=h;NAME=x", with(func(r *attach.Request) {
			r.Tenant, r.Network, r.Group, r.Name = "u", "other", "h", "x"
		})},
		{"empty arguments take nothing away", `{"name":"n","tenant":"t","network":"net","group":"closed"}`, "TENANT=;NETWORK=;GROUP=", with(func(r *attach.Request) {
			r.Tenant, r.Network, r.Group = "t", "net", "closed"
		})},
		{"addresses with and without length", `{"name":"n","ip":"10.1.1.5/24 fd00::5"}`, "", with(func(r *attach.Request) {
			r.Addresses = []netip.Addr{addr("10.1.1.5"), addr("fd00::5")}
		})},
		{"runtime's addresses win", `{"name":"n","ip":["10.1.1.5"],"args":{"cni":{"ips":["10.1.1.6"]}},"runtimeConfig":{"ips":["10.1.1.7/24"]}}`, "", with(func(r *attach.Request) {
			r.Addresses = []netip.Addr{addr("10.1.1.7")}
		})},
		{"a MAC by the capability", `{"name":"n","runtimeConfig":{"mac":"02:00:00:00:00:07"}}`, "", with(func(r *attach.Request) { r.MAC = model.MAC{2, 0, 0, 0, 0, 7} })},
		{"argument's MAC wins, as podman has it", `{"name":"n","runtimeConfig":{"mac":"02:00:00:00:00:07"}}`, "IgnoreUnknown=1;MAC=02:00:00:00:00:08", with(func(r *attach.Request) { r.MAC = model.MAC{2, 0, 0, 0, 0, 8} })},
		{"argument's address wins", `{"name":"n","ip":"10.1.1.5"}`, "IP=10.1.1.9,fd00::9", with(func(r *attach.Request) {
			r.Addresses = []netip.Addr{addr("10.1.1.9"), addr("fd00::9")}
		})},
		{"kubelet's arguments", `{"name":"n"}`, "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=u1;X=y", with(func(r *attach.Request) {
			r.Name, r.Pod = "web-0", attach.Pod{Namespace: "default", Name: "web-0", UID: "u1"}
			r.Labels = map[string]string{"io.kubernetes.pod.name": "web-0", "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "u1"}
		})},
		{"Multus repeats the kubelet's arguments", `{"name":"n"}`, "IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;IP=10.1.1.9;IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;X=y", with(func(r *attach.Request) {
			r.Name, r.Pod, r.Addresses = "web-0", attach.Pod{Namespace: "default", Name: "web-0"}, []netip.Addr{addr("10.1.1.9")}
			r.Labels = map[string]string{"io.kubernetes.pod.name": "web-0", "io.kubernetes.pod.namespace": "default"}
		})},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := request(test.conf, test.args)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, compareAddrs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What is wrong is refused with a sentence that names the key and the value.
func TestBadRequestsAreRefusedByKey(t *testing.T) {
	for _, test := range []struct{ conf, args, want string }{
		{`{`, "", "unexpected end"},
		{`[]`, "", "decode network configuration"},
		{`{"tenant":1}`, "", "tenant: must be a string, not a number"},
		{`{"mtu":100}`, "", "mtu 100: must be between 576 and 65535"},
		{`{"mtu":70000}`, "", "mtu 70000: must be between 576 and 65535"},
		{`{"ip":"10.1.1"}`, "", `address "10.1.1": must be an IPv4 or IPv6 address`},
		{`{"ip":"fe80::1%eth0"}`, "", `address "fe80::1%eth0"`},
		{`{"ip":{}}`, "", "must be an address or a list of addresses"},
		{`{"ip":["10.1.1.5","10.1.1.6"]}`, "", "at most one IPv4 and one IPv6 address"},
		{`{}`, "TENANT", `"TENANT" must be KEY=VALUE`},
		{`{}`, "TENNANT=t", `unknown key "TENNANT"; known are TENANT`},
		{`{}`, "IgnoreUnknown=perhaps", `IgnoreUnknown="perhaps" must be`},
		{`{}`, "IgnoreUnknown=1;MAC=02:00", `MAC="02:00" must be six bytes`},
		{`{"runtimeConfig":{"mac":"x"}}`, "", `runtimeConfig.mac "x": must be six bytes`},
		{`{}`, "IP=1.2.3", `IP: address "1.2.3": must be`},
		{`{}`, "GROUP=web;GROUP=closed", `key "GROUP" is there twice`},
		{`{}`, "IgnoreUnknown=1;GROUP=;NAME=n;GROUP=web", `key "GROUP" is there twice`},
		{`{}`, "IgnoreUnknown=0;IgnoreUnknown=1;FOO=1", `key "IgnoreUnknown" is there twice`},
		{`{}`, "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;IgnoreUnknown=true;K8S_POD_NAMESPACE=bank", `key "K8S_POD_NAMESPACE" is there twice`},
	} {
		if _, err := request(test.conf, test.args); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s with %q: got %v, want %q", test.conf, test.args, err, test.want)
		}
	}
}

// The CNI configuration and CNI_ARGS come from files and runtimes: whatever
// they hold, netplugin answers, and never asks for an address with a zone or
// for two of a family.
func FuzzRequest(f *testing.F) {
	f.Add(`{"name":"n","ip":["10.1.1.5/24","fd00::5"],"labels":{"a":"b"},"runtimeConfig":{"ips":["::ffff:10.1.1.7"]}}`, "IgnoreUnknown=1;K8S_POD_NAME=web-0;IP=10.1.1.9")
	f.Add(`{"cniVersion":"1.0.0","prevResult":{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/ns"}],"ips":[{"address":"10.1.1.1/24","interface":0}]}}`, "")
	f.Add(`{"cniVersion":"0.4.0","prevResult":{"interfaces":[null],"ips":[null,{"address":null,"interface":-1}]}}`, "")
	f.Add(`{"mtu":1e3,"args":{"cni":{"ips":"10.1.1.6"}}}`, "TENANT=t;;GROUP==")
	f.Fuzz(func(t *testing.T, conf, args string) {
		if c, err := loadConf([]byte(conf)); err == nil {
			_ = previousState(c, &attach.CheckRequest{}) // it returns
		}
		r, err := request(conf, args)
		if err != nil {
			return
		}
		seen := map[bool]bool{}
		for _, a := range r.Addresses {
			if !a.IsValid() || a.Zone() != "" || a.Is4In6() || seen[a.Is4()] {
				t.Errorf("addresses %v", r.Addresses)
			}
			seen[a.Is4()] = true
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("the request cannot be sent: %v", err)
		}
	})
}

func request(conf, args string) (attach.Request, error) {
	c, err := loadConf([]byte(conf))
	if err != nil {
		return attach.Request{}, err
	}
	return c.request(cni.Invocation{Container: "c1", Netns: "/ns", IfName: "eth0", Args: args})
}
