package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/model"
)

const envPrefix = "CONTIV_NETMASTER_"

// options are netmaster's settings after validation.
type options struct {
	etcd         []string // endpoints of the cluster store; empty = embedded etcd
	consul       []string
	clusterStore string // 2017 form of the two above
	dataDir      string
	etcdListen   string

	external string // REST
	internal string // this replica's own address: election, registry
	agent    string // the same API for agents
	debug    string

	mode       string
	name       string
	netMode    string
	fwdMode    string
	infra      string
	log        daemon.LogConfig
	givenInfra bool
}

const (
	modeNone       = "none"
	modeDocker     = "docker"
	modeSwarm      = "swarm-mode"
	modeKubernetes = "kubernetes"
	modeMesos      = "mesos"
	modeTest       = "test"

	defaultEtcd    = "http://127.0.0.1:2379"
	agentPort      = "9001"
	errConsulLater = "this netmaster cannot use Consul yet; use etcd with --etcd-endpoints, or the embedded one by giving no store"
)

// newFlags binds every flag of netmaster 1.x, the 2017 spellings and ours.
func newFlags(o *options) *daemon.FlagSet {
	*o = options{
		dataDir: "/var/lib/contiv/etcd", etcdListen: "127.0.0.1:2379",
		external: "0.0.0.0:9999", mode: modeNone, name: "netplugin", infra: "default", log: daemon.DefaultLog(),
	}
	fs := daemon.NewFlagSet("netmaster", "the API server and controller of Contiv")
	fs.Strings(&o.etcd, daemon.Flag{
		Name: "etcd-endpoints", Aliases: []string{"etcd"}, Env: envPrefix + "ETCD_ENDPOINTS", Value: "urls",
		Usage: "etcd to keep the cluster's state in, comma-separated, such as " + defaultEtcd, Default: "an embedded etcd, see --etcd-listen",
		Check: func(v string) error { _, err := etcdEndpoints(v); return err },
	})
	fs.Strings(&o.consul, daemon.Flag{
		Name: "consul-endpoints", Aliases: []string{"consul"}, Env: envPrefix + "CONSUL_ENDPOINTS", Value: "urls",
		Usage: "Consul to keep the cluster's state in (not in this version)",
		Check: func(string) error { return errors.New(errConsulLater) },
	})
	fs.String(&o.clusterStore, daemon.Flag{
		Name: "cluster-store", Env: envPrefix + "CLUSTER_STORE", Value: "etcd://host:port",
		Usage: "spelling of 2017 for --etcd-endpoints and --consul-endpoints",
		Check: checkClusterStore,
	})
	fs.String(&o.dataDir, daemon.Flag{
		Name: "data-dir", Env: envPrefix + "DATA_DIR", Value: "directory",
		Usage: "where the embedded etcd keeps its data",
		Check: notEmpty,
	})
	fs.String(&o.etcdListen, daemon.Flag{
		Name: "etcd-listen", Env: envPrefix + "ETCD_LISTEN", Value: "ip:port",
		Usage: "where the embedded etcd serves clients; agents on other hosts need an address that they can reach",
		Check: checkIPPort,
	})
	fs.String(&o.external, daemon.Flag{
		Name: "external-address", Aliases: []string{"listen-url"}, Env: envPrefix + "EXTERNAL_ADDRESS", Value: "ip:port",
		Usage: "where to serve the REST API",
		Check: checkListen,
	})
	fs.String(&o.internal, daemon.Flag{
		Name: "internal-address", Aliases: []string{"control-url"}, Env: envPrefix + "INTERNAL_ADDRESS", Value: "ip:port",
		Usage:   "this netmaster's address for agents and other netmasters",
		Default: "<host ip from the local resolver>:<port of --external-address>",
		Check:   checkListen,
	})
	fs.String(&o.agent, daemon.Flag{
		Name: "agent-address", Env: envPrefix + "AGENT_ADDRESS", Value: "ip:port",
		Usage: "where to serve the same API for agents", Default: "<ip of --internal-address>:" + agentPort,
		Check: checkIPPort,
	})
	fs.String(&o.debug, daemon.Flag{
		Name: "debug-address", Env: envPrefix + "DEBUG_ADDRESS", Value: "ip:port",
		Usage: "where to serve profiling under /debug/pprof/; empty = nowhere",
		Check: checkIPPort,
	})
	fs.Enum(&o.mode, daemon.Flag{
		Name: "mode", Aliases: []string{"plugin-mode", "cluster-mode"}, Env: envPrefix + "MODE", Value: "mode",
		Usage: "orchestrator: none (plain hosts), docker, swarm-mode, kubernetes, mesos or test",
	}, modeNone, modeDocker, modeSwarm, modeKubernetes, modeMesos, modeTest)
	fs.String(&o.name, daemon.Flag{
		Name: "name", Aliases: []string{"plugin-name"}, Env: envPrefix + "PLUGIN_NAME", Value: "name",
		Usage: "name of the Docker plugin, in modes docker and swarm-mode",
		Check: checkPluginName,
	})
	fs.Enum(&o.netMode, daemon.Flag{
		Name: "netmode", Aliases: []string{"network-mode"}, Env: envPrefix + "NET_MODE", Value: "encap",
		Usage: "encapsulation of networks that the orchestrator makes without naming one: vlan or vxlan",
	}, "vlan", "vxlan")
	fs.Enum(&o.fwdMode, daemon.Flag{
		Name: "fwdmode", Aliases: []string{"forward-mode"}, Env: envPrefix + "FORWARD_MODE", Value: "mode",
		Usage: "forwarding mode of a new cluster: bridge or routing", Default: "bridge",
	}, "bridge", "routing")
	fs.Enum(&o.infra, daemon.Flag{
		Name: "infra", Aliases: []string{"infra-type"}, Env: envPrefix + "INFRA", Value: "type",
		Usage: "infrastructure of a new cluster: default, aci or aci-opflex",
	}, "default", "aci", "aci-opflex")
	o.log.Register(fs, envPrefix)
	return fs
}

// finish checks what needs more than one flag, and fills in what the resolver
// knows.
func (o *options) finish(ctx context.Context, fs *daemon.FlagSet) error {
	if o.clusterStore != "" {
		if how := fs.Given("etcd-endpoints"); how != "" {
			return daemon.Usagef("%s and %s both name a cluster store; give one", fs.Given("cluster-store"), how)
		}
		o.etcd = []string{o.clusterStore}
	}
	for i, e := range o.etcd {
		list, err := etcdEndpoints(e)
		if err != nil {
			return daemon.Usagef("%s %q: %w", fs.Given("etcd-endpoints"), e, err)
		}
		o.etcd[i] = list[0]
	}
	if len(o.etcd) > 0 {
		for _, flag := range []string{"data-dir", "etcd-listen"} {
			if how := fs.Given(flag); how != "" {
				return daemon.Usagef("%s is for the embedded etcd, but a cluster store is given too; leave one out", how)
			}
		}
	}
	o.givenInfra = fs.Given("infra") != ""
	extHost, extPort, err := net.SplitHostPort(o.external)
	if err != nil {
		return daemon.Usagef("--external-address %q: must be ip:port", o.external)
	}
	host, port := "", extPort
	if o.internal != "" {
		if host, port, err = net.SplitHostPort(o.internal); err != nil {
			return daemon.Usagef("--internal-address %q: must be ip:port", o.internal)
		}
		if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
			return daemon.Usagef("%s %q: must name one address of this host, since others find this netmaster by it", fs.Given("internal-address"), o.internal)
		}
	}
	if host == "" {
		if ip, err := netip.ParseAddr(extHost); err == nil && !ip.IsUnspecified() {
			host = extHost
		} else if host, err = daemon.LocalAddress(ctx); err != nil {
			return daemon.Usagef("--internal-address must be given: %w", err)
		}
	}
	o.internal = net.JoinHostPort(host, port)
	if o.agent == "" {
		o.agent = net.JoinHostPort(host, agentPort)
	}
	return nil
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

// etcdEndpoints reads a comma-separated list of http, https and etcd URLs; the
// last mean http, and so does a missing scheme.
func etcdEndpoints(v string) ([]string, error) {
	list := daemon.SplitList(v)
	if len(list) == 0 {
		return nil, errors.New("must name an etcd, such as " + defaultEtcd)
	}
	for i, s := range list {
		text := s
		if rest, ok := strings.CutPrefix(text, "etcd://"); ok {
			text = "http://" + rest
		}
		if !strings.Contains(text, "://") {
			text = "http://" + text
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" || u.User != nil ||
			u.RawQuery != "" || u.Hostname() == "" || daemon.CheckHostPort(u.Host) != nil {
			return nil, fmt.Errorf("must be http://host:port, https://host:port or etcd://host:port, not %q", s)
		}
		list[i] = u.Scheme + "://" + u.Host
	}
	return list, nil
}

func checkClusterStore(v string) error {
	if strings.HasPrefix(v, "consul://") {
		return errors.New(errConsulLater)
	}
	if !strings.HasPrefix(v, "etcd://") || strings.Contains(v, ",") {
		return errors.New("must be etcd://host:port")
	}
	_, err := etcdEndpoints(v)
	return err
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

func checkIPPort(v string) error {
	if strings.HasPrefix(v, ":") || checkListen(v) != nil {
		return errors.New("must be ip:port, such as 127.0.0.1:2379, with a port between 1 and 65535")
	}
	return nil
}

func checkPluginName(v string) error {
	if _, err := model.ParseTenantName(v); err != nil {
		return errors.New("must be letters, digits and inner hyphens, in labels joined by dots, at most 64 characters")
	}
	return nil
}
