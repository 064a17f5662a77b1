package main

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/cmd/internal/clusterstore"
	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/docker"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

const envPrefix = "CONTIV_NETMASTER_"

// options are netmaster's settings after validation.
type options struct {
	store      clusterstore.Flags // none = the embedded etcd
	dataDir    string
	flags      *flags.Set
	restore    string // a backup to make dataDir of, instead of running
	keepTokens bool   // the backup's tokens stay good
	newAuth    bool   // a restore makes new authorities
	etcdListen string
	joining    clusterOptions // the embedded store's cluster

	external string // REST
	internal string // this replica's own address: election, registry
	agent    string // the same API for agents
	debug    string

	mode       string
	name       string
	hosts      []string // names that clients use, beside those known
	legacy     bool     // status 500 for 1.x's clients
	evictAfter string   // how long a host may be away; see graceTime
	engine     string   // of Docker, unix:///path; empty = none
	kubeconfig string   // file, or inCluster; empty = no Kubernetes
	kubeUID    string   // of the Kubernetes that the store is to follow from now on
	podsTenant bool     // pods choose their tenant
	podGroups  []string // that pods may choose; "*" alone = any
	services   kubeServices
	podCIDR    []string // of the network for pods that name none; empty = netmaster makes none
	podSubnets []netip.Prefix
	noPods     bool // podCIDR is none
	netMode    string
	fwdMode    string
	infra      string
	log        daemon.LogConfig
	tokenFile  string
	token      *transport.TokenFile // nil = everybody is let in
	ring       *supportbundle.Ring  // the newest lines of the log
	certs      daemon.TLS
	tls        transport.Config // of certs
	access     accessOptions
	aci        aciOptions
	secure     bool
	enroll     string // NAMESPACE/NAME, whose tokens get hosts certificates
	// acceptPlain lets in, while a cluster is turned secure, who has no certificate yet.
	acceptPlain bool
	plainStore  string // ip:port where the embedded store does
	givenInfra  bool
	unresolved  error // why the host's name gives no default for --internal-address
	loopback    error // why --internal-address is loopback by default
}

const (
	modeNone       = "none"
	modeDocker     = "docker"
	modeSwarm      = "swarm-mode"
	modeKubernetes = "kubernetes"
	modeMesos      = "mesos"
	modeTest       = "test"

	agentPort = "9001"
)

// newFlags binds every flag of netmaster 1.x, the 2017 spellings and ours.
func newFlags(o *options) *flags.Set {
	*o = options{
		dataDir: "/var/lib/contiv/etcd", etcdListen: "127.0.0.1:2379",
		external: "0.0.0.0:9999", mode: modeNone, name: "netplugin", podGroups: []string{anyGroup}, infra: "default", log: daemon.DefaultLog(),
	}
	fs := &flags.Set{Program: "netmaster", About: "the API server and controller of Contiv", Prefix: envPrefix, Settings: true}
	o.flags = fs
	o.store.Register(fs, "etcd to keep the cluster's state in, comma-separated, such as "+clusterstore.LocalEtcd, "Consul to keep the cluster's state in, comma-separated, such as http://127.0.0.1:8500; instead of etcd").Else("an embedded etcd, see --etcd-listen")
	fs.String(&o.dataDir, "data-dir", "directory", "where the embedded etcd keeps its data").Must(notEmpty)
	fs.String(&o.restore, "restore", "file", "make the data directory from a backup of 'netctl backup', and exit; existing data is kept beside it; no netmaster may be running on it").Must(notEmpty).From("")
	fs.Bool(&o.keepTokens, "keep-tokens", "with --restore: the backup's tokens stay valid, including those revoked after it; otherwise they are revoked").From("")
	fs.Bool(&o.newAuth, "new-authorities", "with --restore: make new authorities instead of the data directory's, which invalidates all existing certificates").From("")
	fs.String(&o.etcdListen, "etcd-listen", "ip:port", "where the embedded etcd serves clients; agents on other hosts must be able to reach it").Must(checkIPPort)
	o.joining.register(fs)
	fs.String(&o.external, "external-address, listen-url", "ip:port", "where to serve the REST API; with --internal-address alone, there and at 127.0.0.1").Must(checkListen)
	fs.String(&o.internal, "internal-address, control-url", "ip:port", "this netmaster's address for agents and other netmasters").Must(checkListen).Else("<ip of the host's name, or of its default route>:<port of --external-address>")
	fs.String(&o.agent, "agent-address", "ip:port", "where to serve the same API for agents").Must(checkIPPort).Else("<ip of --internal-address>:" + agentPort)
	fs.String(&o.debug, "debug-address", "ip:port", "where to serve profiling under /debug/pprof/; empty = nowhere").Must(checkIPPort)
	fs.Enum(&o.mode, "mode, plugin-mode, cluster-mode", "mode", "orchestrator: none (plain hosts), docker, swarm-mode, kubernetes, mesos or test; "+idleMode, modeNone, modeDocker, modeSwarm, modeKubernetes, modeMesos, modeTest)
	fs.String(&o.name, "name, plugin-name", "name", "what Docker calls its plugin; "+idleName).Must(checkPluginName).From(envPrefix + "PLUGIN_NAME")
	fs.String(&o.engine, "docker-endpoint", "unix:///path", "Docker engine of a swarm manager, on which the leader creates the swarm's networks; none = create none").Must(func(v string) error {
		if v == "none" {
			return nil
		}
		if _, err := docker.ParseEndpoint(v); err != nil {
			return errors.New("must be unix:///path of the engine's socket, or none")
		}
		return nil
	}).Else("unix:///var/run/docker.sock with --mode swarm-mode, otherwise none")
	fs.String(&o.kubeconfig, "kubeconfig", "file", "Kubernetes cluster to sync into the store: a kubeconfig, a contiv.json of 1.x, or in-cluster for the service account of netmaster's pod; empty = none").Must(notEmpty)
	fs.String(&o.kubeUID, "kubernetes-cluster", "UID", "with --kubeconfig: UID of namespace kube-system of the cluster to sync; objects of the previous cluster are deleted; empty = the first cluster seen, and no other after it").Must(func(v string) error { return model.KubernetesCluster{UID: v}.Validate() })
	fs.Bool(&o.podsTenant, "pods-choose-tenant", "with --kubeconfig: in namespaces without the label io.contiv.tenant pods choose their tenant by their own label")
	fs.Strings(&o.podGroups, "pod-groups", "names", "with --kubeconfig: endpoint groups that pods may choose by their own label io.contiv.net-group, comma-separated, in any tenant; * = any; empty = none; namespaces may choose any group").Must(checkGroups)
	o.services.register(fs)
	fs.Strings(&o.podCIDR, "pod-cidr", "subnets", "pod subnets of Kubernetes, IPv4, IPv6 or both, comma-separated, for the native network default-net, which is created if missing; empty = kubeadm's podSubnet, if any; none = create no network").Must(func(v string) error { _, _, err := parsePodSubnets(flags.Split(v)); return err })
	fs.String(&o.tokenFile, "token-file", "file", "file with one token per line, one of which clients must send; the first is sent to other netmasters; reloaded when it changes; empty = all clients are accepted").Must(notEmpty)
	o.certs.Register(fs, "the REST API, profiling and requests to other netmasters", "as a client of etcd or Consul, or of the embedded etcd's port, where clients need a certificate")
	o.registerSecure(fs)
	o.access.register(fs)
	fs.Strings(&o.hosts, "allowed-hosts", "names", "names with a dot, comma-separated, that clients may use in Host, in addition to addresses, names without a dot and host names of the cluster; others are refused (403)").Must(checkHostNames)
	o.registerEvictAfter(fs)
	fs.Bool(&o.legacy, "legacy-errors", "answer refusals with status 500 to clients that send no Accept header, as netctl and the Go client of 1.x, which show the reason of no other status")
	fs.Enum(&o.netMode, "netmode, network-mode", "encap", "encapsulation of networks that an orchestrator makes without naming one: vlan or vxlan; "+idleNetMode, "vlan", "vxlan").From(envPrefix + "NET_MODE")
	fs.Enum(&o.fwdMode, "fwdmode, forward-mode", "mode", "forwarding mode of a new cluster: bridge, or routing, in which networks of a tenant reach each other", "bridge", "routing").Else("bridge").From(envPrefix + "FORWARD_MODE")
	fs.Enum(&o.infra, "infra, infra-type", "type", "infrastructure of a new cluster: default, aci or aci-opflex; "+idleInfra(), "default", "aci", "aci-opflex")
	o.aci.register(fs)
	o.log.Register(fs)
	fs.Config("/etc/contiv/netmaster.yaml")
	return fs
}

// finish checks what needs more than one flag, and fills in what the resolver
// knows.
func (o *options) finish(ctx context.Context, fs *flags.Set) error {
	if err := o.store.Choose(fs); err != nil {
		return err
	}
	if err := o.certs.Open(fs); err != nil {
		return err
	}
	if err := o.store.Resolve(fs, &o.certs); err != nil {
		return err
	}
	if o.store.External() {
		embedded := append([]string{"data-dir", "etcd-listen", "restore", "secure", "accept-plain"}, joinFlags...)
		if o.secure && len(o.store.Etcd) > 0 {
			embedded = slices.DeleteFunc(embedded, func(flag string) bool { return slices.Contains(secureFlags, flag) })
		}
		for _, flag := range embedded {
			if how := fs.Given(flag); how != "" {
				return flags.Usagef("%s is for the embedded etcd, but a cluster store is given too; omit one", how)
			}
		}
	}
	for _, flag := range []string{"keep-tokens", "new-authorities"} {
		if how := fs.Given(flag); how != "" && o.restore == "" {
			return flags.Usagef("%s is for --restore", how)
		}
	}
	switch {
	case o.engine == "none":
		o.engine = ""
	case o.engine == "" && o.mode == modeSwarm:
		o.engine = "unix:///var/run/docker.sock"
	case o.engine != "" && o.mode != modeSwarm:
		return flags.Usagef("%s is for --mode swarm-mode: in other modes each netplugin makes its engine's networks", fs.Given("docker-endpoint"))
	}
	for _, flag := range []string{"kubernetes-cluster", "pods-choose-tenant", "pod-groups"} {
		if how := fs.Given(flag); how != "" && o.kubeconfig == "" {
			return flags.Usagef("%s is for Kubernetes; name it with --kubeconfig", how)
		}
	}
	if err := o.services.finish(fs, o.kubeconfig); err != nil {
		return err
	}
	if err := o.aci.finish(fs); err != nil {
		return err
	}
	o.givenInfra = fs.Given("infra") != ""
	var err error
	if o.podSubnets, o.noPods, err = parsePodSubnets(o.podCIDR); err != nil {
		return flags.Usagef("%s: %w", fs.Given("pod-cidr"), err)
	}
	for _, p := range o.podSubnets {
		if k := slices.IndexFunc(o.services.ranges, p.Overlaps); k >= 0 {
			return flags.Usagef("--pod-cidr: %s overlaps %s of --service-cidr: pods and services need addresses of their own", p, o.services.ranges[k])
		}
	}
	if o.token, err = transport.OpenTokens(o.tokenFile); err != nil {
		return flags.Usagef("%s: %w", fs.Given("token-file"), err)
	}
	extHost, extPort, err := net.SplitHostPort(o.external)
	if err != nil {
		return flags.Usagef("--external-address %q: must be ip:port", o.external)
	}
	host, port := "", extPort
	if o.internal != "" {
		if host, port, err = net.SplitHostPort(o.internal); err != nil {
			return flags.Usagef("--internal-address %q: must be ip:port", o.internal)
		}
		if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
			return flags.Usagef("%s %q: must name one address of this host, since others find this netmaster by it", fs.Given("internal-address"), o.internal)
		}
		if fs.Given("external-address") == "" && host != "" {
			extHost = host
			if !isLoopback(host) {
				extHost = "127.0.0.1" // for netctl on this host
			}
			o.external = net.JoinHostPort(extHost, port)
		}
	}
	if host == "" {
		if ip, err := netip.ParseAddr(extHost); err == nil && !ip.IsUnspecified() {
			host = extHost
		} else if host, err = daemon.LocalAddress(ctx, func(why error) { o.unresolved = why }); err != nil {
			host, o.loopback = "127.0.0.1", err
		}
	}
	o.internal = net.JoinHostPort(host, port)
	if o.agent == "" {
		o.agent = net.JoinHostPort(host, agentPort)
	}
	if err := o.access.finish(fs, o.secure); err != nil {
		return err
	}
	if err := o.finishSecure(fs, host); err != nil {
		return err
	}
	o.tls = o.certs.Config()
	o.secureListeners()
	if err := o.joining.pods.finish(fs, o); err != nil {
		return err
	}
	if err := o.joining.finish(fs, host); err != nil {
		return err
	}
	return o.checkCertificates(fs)
}

// checkCertificates refuses certificates by which others would not believe this
// netmaster, at its start rather than at theirs.
func (o *options) checkCertificates(fs *flags.Set) error {
	if o.certs.Own != nil {
		by := []string{o.internal, o.agent}
		if fs.Given("external-address") != "" {
			by = append(by, o.external)
		}
		if err := o.certs.Own.Check(hostsOf(by...), pki.Netmaster); err != nil {
			return flags.Usagef("%s: %w", fs.Given("tls-dir"), err)
		}
	}
	if o.certs.Store != nil && !o.store.External() {
		if err := o.certs.Store.Check(hostsOf(o.etcdListen), pki.Netmaster); err != nil {
			return flags.Usagef("%s: %w", fs.Given("store-tls-dir"), err)
		}
	}
	return nil
}

// hostsOf are the hosts of addresses, without unspecified addresses.
func hostsOf(addresses ...string) []string {
	var hosts []string
	for _, s := range addresses {
		host, _, err := net.SplitHostPort(s)
		if ip, bad := netip.ParseAddr(host); err == nil && host != "" && (bad != nil || !ip.IsUnspecified()) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// initial returns the settings that a new cluster gets; zero = the default.
func (o *options) initial() model.Global {
	return model.Global{FwdMode: model.FwdMode(o.fwdMode), Infra: model.InfraType(o.infra)}
}

func notEmpty(v string) error {
	if strings.TrimSpace(v) == "" {
		return errors.New("must not be empty")
	}
	return nil
}

// checkListen accepts ip:port and :port.
func checkListen(v string) error {
	host, port, err := net.SplitHostPort(v)
	if err == nil && host != "" {
		_, err = netip.ParseAddr(host)
	}
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 {
		return errors.New("must be ip:port, such as 0.0.0.0:9999, with a port between 1 and 65535")
	}
	return nil
}

// checkHostNames refuses what no Host header says: it would allow nothing.
func checkHostNames(v string) error {
	for _, name := range flags.Split(v) {
		if _, err := model.ParseHostName(strings.TrimSuffix(name, ".")); err != nil {
			return errors.New("must be names such as contiv.example.com, comma-separated, without scheme and port")
		}
	}
	return nil
}

func checkIPPort(v string) error {
	if strings.HasPrefix(v, ":") || checkListen(v) != nil {
		return errors.New("must be ip:port, such as 127.0.0.1:2379, with a port between 1 and 65535")
	}
	return nil
}

func checkPluginName(v string) error {
	if !docker.ValidName(v) {
		return errors.New("must be a name without spaces, or a managed plugin's name such as contiv/netplugin:2.0")
	}
	return nil
}
