package matrix

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/base/covering"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// The dimensions of a row.
const (
	dimRuntime = iota
	dimSecurity
	dimStore
	dimDriver
	dimMode
	dimNetwork
	dimFamily
	dimPolicy
	dimEnvironment
)

// Runtimes: how workloads are attached.
const (
	CNI     = "cni"        // the CNI library with contivk8s, by configuration
	K8s1x   = "contivk8s"  // 1.x's call: a bare configuration, where the pod belongs in CNI_ARGS
	Nomad   = "nomad"      // what Nomad's client sends
	Mesos   = "mesos"      // Mesos' containerizer, with labels
	Mesos1x = "mesos1x"    // 1.x's plugin for Mesos, on its socket
	Process = "process"    // netctl attach
	Docker  = "docker"     // a Docker Engine
	Compose = "compose"    // Compose 1.29, on one
	Swarm   = "swarm"      // services of a swarm, whose engines have the managed plugin
	Podman  = "podman"     // Podman 4 with its CNI backend
	Pods    = "kubernetes" // what a kubelet sends, of pods in a Kubernetes that netmaster follows
)

// Securities.
const (
	Plain  = "plain"
	Secure = "secure" // --secure from the first start
	OwnPKI = "own"    // certificates of 'netctl pki'
	Turned = "turned" // made secure while it runs
)

// Stores.
const (
	Embedded1 = "embedded1"
	Embedded3 = "embedded3"
	EtcdTLS   = "etcd-tls"
	ConsulACL = "consul-acl"
	Consul3   = "consul3"
)

// Kinds of networks, address families, policies and forwarding modes.
const (
	VXLAN        = "vxlan"
	VLAN         = "vlan"
	Native       = "native"
	Infra        = "infra"
	IPv4         = "ipv4"
	Dual         = "dual"
	IPv6         = "ipv6"
	NoPolicy     = "none"
	ByGroup      = "group"      // Contiv's policy of a group
	ByLabel      = "label"      // a network policy by labels
	ByKubernetes = "kubernetes" // a NetworkPolicy
	Bridge       = "bridge"
	Routing      = "routing"
)

// plainEnvironment is testcluster.Plain's name.
const plainEnvironment = "plain"

type dimension struct {
	name   string
	values []string
}

func dimensions() []dimension {
	var environments []string
	for _, e := range testcluster.Environments() {
		environments = append(environments, environmentName(e))
	}
	return []dimension{
		dimRuntime:     {"runtime", []string{CNI, K8s1x, Nomad, Mesos, Mesos1x, Process, Docker, Compose, Swarm, Podman, Pods}},
		dimSecurity:    {"security", []string{Plain, Secure, OwnPKI, Turned}},
		dimStore:       {"store", []string{Embedded1, Embedded3, EtcdTLS, ConsulACL, Consul3}},
		dimDriver:      {"driver", []string{testcluster.DriverEBPF, testcluster.DriverOVS, testcluster.DriverMixed}},
		dimMode:        {"mode", []string{Bridge, Routing}},
		dimNetwork:     {"network", []string{VXLAN, VLAN, Native, Infra}},
		dimFamily:      {"family", []string{IPv4, Dual, IPv6}},
		dimPolicy:      {"policy", []string{NoPolicy, ByGroup, ByLabel, ByKubernetes}},
		dimEnvironment: {"environment", environments},
	}
}

func environmentName(e testcluster.Environment) string {
	if e == testcluster.Plain {
		return plainEnvironment
	}
	return string(e)
}

// Row has one value of each dimension.
type Row []string

// ID is short, and the same as long as the row is.
func (r Row) ID() string {
	sum := sha256.Sum256([]byte(strings.Join(r, " ")))
	return hex.EncodeToString(sum[:4])
}

func (r Row) String() string { return strings.Join(r, " ") }

// cannot are values that no cluster of the matrix has together, with the reason: the product
// refuses them, the thing does not exist, or the test cluster cannot make it.
var cannot = []struct{ values, reason string }{
	{"security=secure store=consul-acl", "--secure is for an embedded store or an etcd"},
	{"security=secure store=consul3", "likewise"},
	{"security=turned store=etcd-tls", "only a cluster with the embedded store is turned secure (docs/how-to/secure-running.md)"},
	{"security=turned store=consul-acl", "likewise"},
	{"security=turned store=consul3", "likewise"},
	{"runtime=docker family=ipv6", "Docker has no networks without IPv4"},
	{"runtime=docker network=infra", "an engine gets no infra networks (docs/how-to/docker.md)"},
	{"runtime=compose family=ipv6", "Docker has no networks without IPv4"},
	{"runtime=compose network=infra", "an engine gets no infra networks"},
	{"runtime=swarm family=ipv6", "Docker has no networks without IPv4"},
	{"runtime=swarm network=infra", "an engine gets no infra networks"},
	{"environment=slash32 driver=ovs", "Open vSwitch in user space finds no way from an address without a subnet (docs/reference/restrictions.md)"},
	{"environment=slash32 driver=mixed", "likewise"},
}

// has reports whether a row has all of the values, "runtime=cni driver=ovs"; a value that is
// not chosen yet is "".
func (r Row) has(values string) bool {
	mine := map[string]bool{}
	for i, d := range dimensions() {
		mine[d.name+"="+r[i]] = true
	}
	for v := range strings.FieldsSeq(values) {
		if !mine[v] {
			return false
		}
	}
	return true
}

// Rows returns the matrix, and how many pairs and triples of values it has.
func Rows() (rows []Row, met map[int]int) {
	dims := dimensions()
	sizes := make([]int, len(dims))
	for i, d := range dims {
		sizes[i] = len(d.values)
	}
	row := func(chosen []int) Row {
		r := make(Row, len(dims))
		for d, v := range chosen {
			if v != covering.Open {
				r[d] = dims[d].values[v]
			}
		}
		return r
	}
	possible := func(chosen []int) bool {
		r := row(chosen)
		if r[dimPolicy] == ByKubernetes && r[dimRuntime] != "" && r[dimRuntime] != Pods {
			return false // NetworkPolicies select pods
		}
		for _, c := range cannot {
			if r.has(c.values) {
				return false
			}
		}
		return true
	}
	triple := []int{dimRuntime, dimSecurity, dimDriver}
	chosen, met := covering.Rows(sizes, append([][]int{triple}, covering.Pairs(len(dims))...), possible)
	for _, c := range chosen {
		rows = append(rows, row(c))
	}
	return rows, met
}

// missing is a combination that does not work yet.
type missing struct{ values, what string }

// readMissing reads missing.txt: lines "VALUES: WHAT"; # begins a comment.
func readMissing(text string) (all []missing, err error) {
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		values, what, ok := strings.Cut(line, ": ")
		if !ok {
			return nil, fmt.Errorf("line %d: %q has no \": \" before what is missing", i+1, line)
		}
		for v := range strings.FieldsSeq(values) {
			if !slices.ContainsFunc(dimensions(), func(d dimension) bool {
				return slices.ContainsFunc(d.values, func(s string) bool { return d.name+"="+s == v })
			}) {
				return nil, fmt.Errorf("line %d: no dimension has the value %q", i+1, v)
			}
		}
		all = append(all, missing{values, what})
	}
	return all, nil
}
