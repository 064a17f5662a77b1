package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/contiv/netplugin/v2/cmd/internal/clusterstore"
	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/datapath/ebpf"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/docker"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

const envPrefix = "CONTIV_NETPLUGIN_"

// options are netplugin's settings; the lower part is filled in by finish.
type options struct {
	store        clusterstore.Flags
	host         string
	takeHost     bool
	ctrlIP       string
	vtepIP       string
	vxlanPort    int
	uplinks      []string
	mode         string
	netMode      string
	fwdMode      string
	pvtSubnet    string
	ipForward    bool
	reachControl bool
	netmaster    string
	joining      joining
	tokenFile    string

	driver      string
	ovsDB       string
	ovsRunDir   string
	ovsBridge   string
	ovsDatapath string
	ebpfPinDir  string
	cgroup      string // "" = the root of cgroup2
	ebpfSizes   string

	pluginName      string
	dockerDir       string
	dockerEngine    string
	dockerScope     string
	dockerTokenFile string
	dockerToken     *transport.TokenFile
	remountSysctls  bool

	dns         string
	dnsUpstream string

	seeds, storeAt []string // with a certificate: URLs of netmasters to begin with, and where the store was said to be

	stateDir    string
	cniSocket   string
	restAddress string
	debugHooks  bool
	uninstall   bool
	force       bool
	stay        bool // after uninstall
	installCNI  bool
	cniBinDir   string // "" = not given
	cniConfDir  string
	debug       string
	log         daemon.LogConfig
	flowLog     string
	certs       daemon.TLS
	tls         transport.Config // of certs

	token      *transport.TokenFile // nil = none is shown
	hostName   model.HostName
	ctrl, vtep netip.Addr
	unresolved error // why these are not of the host's name by default
	fwd        model.FwdMode
	pvt        netip.Prefix
}

const (
	driverAuto = "auto"

	cgroupNone = "none"

	modeNone   = "none"
	modeDocker = "docker"
	modeSwarm  = "swarm-mode"

	scopeLocal  = "local"
	scopeGlobal = "global"
)

// newFlags binds every flag of netplugin 1.x, the 2017 spellings and ours.
func newFlags(o *options) *flags.Set {
	*o = options{
		store: clusterstore.Flags{Etcd: []string{clusterstore.LocalEtcd}}, vxlanPort: 4789, mode: modeNone, driver: driverAuto,
		pluginName: "netplugin", dockerDir: docker.SocketDir, dockerEngine: "unix:///var/run/docker.sock",
		dns:      dnsOn,
		stateDir: attach.StateDir, cniSocket: attach.SocketPath, restAddress: "127.0.0.1:9006",
		log: daemon.DefaultLog(),
	}
	fs := &flags.Set{Program: "netplugin", About: "the host agent of Contiv", Prefix: envPrefix, Settings: true}
	storeFlags(fs, o)
	joinFlags(fs, o)
	hostFlags(fs, o)
	clusterFlags(fs, o)
	driverFlags(fs, o)
	dockerFlags(fs, o)
	dnsFlags(fs, o)
	localFlags(fs, o)
	cniFlags(fs, o)
	o.log.Register(fs)
	fs.Config("/etc/contiv/netplugin.yaml")
	return fs
}

func storeFlags(fs *flags.Set, o *options) {
	o.store.Register(fs, "etcd with the cluster's state, comma-separated; a host with a certificate asks netmasters at port 9999 of these machines instead",
		"Consul with the cluster's state, comma-separated, such as http://127.0.0.1:8500; instead of etcd; with a certificate as --etcd-endpoints")
	fs.String(&o.netmaster, "netmaster", "urls", "URLs of netmasters, comma-separated").Must(checkURLs).Else("those that are registered")
	fs.String(&o.tokenFile, "token-file", "file", "file whose first line is the token to send to netmasters with --token-file; reloaded when it changes; empty = none")
	o.certs.Register(fs, "requests to netmasters, inspection and profiling", "as a client of etcd or Consul")
}

func hostFlags(fs *flags.Set, o *options) {
	fs.String(&o.host, "host, host-label", "name", "this host's name in the cluster").Must(func(v string) error {
		if _, err := model.ParseHostName(v); err != nil {
			return errors.New("must be letters, digits and inner hyphens, in labels joined by dots, at most 256 characters")
		}
		return nil
	}).Else("<host name reported by the kernel>")
	fs.Bool(&o.takeHost, "take-host", "take the host's name over from another installation that is permanently gone and had other addresses, and release its endpoints; refused while that one is alive")
	fs.String(&o.ctrlIP, "ctrl-ip", "ip", "this host's address for the control plane").Must(checkIP).Else("<ip of the host's name, or of its default route>").From(envPrefix + "CONTROL_IP")
	fs.String(&o.vtepIP, "vtep-ip", "ip", "this host's address for VXLAN tunnels").Must(checkIP).Else("--ctrl-ip")
	fs.IntWithin(&o.vxlanPort, "vxlan-port", "port", "UDP port of VXLAN; the same on all hosts", 1, 65535)
	fs.Strings(&o.uplinks, "vlan-uplinks, vlan-if", "interfaces", "interfaces for VLAN networks, comma-separated; the first that exists is used").Must(checkInterfaces)
}

func clusterFlags(fs *flags.Set, o *options) {
	fs.Enum(&o.mode, "mode, plugin-mode, cluster-mode", "mode", "orchestrator: none (plain hosts, CNI), docker, swarm-mode, kubernetes or mesos; "+idleMode, modeNone, modeDocker, modeSwarm, "kubernetes", "mesos", "test")
	fs.Enum(&o.netMode, "netmode, network-mode", "encap", "encapsulation that the host must support: vlan (needs --vlan-uplinks) or vxlan", "vlan", "vxlan").Else("both").From(envPrefix + "NET_MODE")
	fs.Enum(&o.fwdMode, "fwdmode, forward-mode", "mode", "forwarding mode that the cluster must have when netplugin starts: bridge or routing", "bridge", "routing").Else("the cluster's").From(envPrefix + "FORWARD_MODE")
	fs.String(&o.pvtSubnet, "private-subnet", "a.b.0.0/16", "private subnet that the cluster must have").Must(func(v string) error { _, err := parsePvtSubnet(v); return err }).Else("the cluster's")
	fs.Bool(&o.ipForward, "ip-forward", "set net.ipv4.ip_forward, and with IPv6 containers net.ipv6.conf.all.forwarding with accept_ra=2; without forwarding, containers reach nothing beyond this host")
	fs.Bool(&o.reachControl, "containers-reach-control-plane", "let containers reach netmasters, the store and netplugins, which is blocked by default: anyone who can reach them controls the cluster")
}

// socketPins is where the programs for sockets of the host's processes are pinned, and
// clientPins where those for clients outside are.
func (o *options) socketPins() string { return strings.TrimRight(o.ebpfPinDir, "/") + "-sockets" }
func (o *options) clientPins() string { return strings.TrimRight(o.ebpfPinDir, "/") + "-clients" }

func localFlags(fs *flags.Set, o *options) {
	fs.String(&o.stateDir, "state-dir", "directory", "where to store the journal of attachments and pending deletions").Must(checkPath)
	fs.String(&o.cniSocket, "cni-socket", "path", "unix socket that contivk8s talks to").Must(checkSocket)
	o.ebpfPinDir = ebpf.DefaultPinDir
	fs.String(&o.ebpfPinDir, "ebpf-pin-dir", "directory", "BPF file system directory for pinned programs and maps; DIRECTORY-sockets and DIRECTORY-clients beside it hold those for services; different for each netplugin on a machine").Must(checkPath)
	fs.String(&o.cgroup, "cgroup", "directory", "directory of cgroup2: processes in it and below reach services by eBPF at their sockets; none = by nftables").Must(checkCgroup).Else("where cgroup2 is mounted")
	fs.String(&o.restAddress, "rest-address", "ip:port", "where to serve inspection, health and metrics; without authentication unless netplugin has a certificate; none = nowhere").Must(checkREST)
	fs.String(&o.debug, "debug-address", "ip:port", "where to serve profiling under /debug/pprof/; empty = nowhere").Must(daemon.CheckHostPort)
	fs.String(&o.flowLog, "flow-log", "file|syslog|url", "where to log connections decided by a rule with log or by an audited policy, as JSON lines: a file, syslog for this machine's, or a URL as in --syslog-url; empty = nowhere").Must(daemon.CheckLines)
	fs.Bool(&o.uninstall, "uninstall", "remove everything of netplugin from this host, and exit; netplugin must not be running, and no container attached").From("")
	fs.Bool(&o.force, "force", "with --uninstall: disconnect containers that are still attached").From("")
	fs.Bool(&o.stay, "stay", "with --uninstall: wait for a signal at the end, for pods of a DaemonSet").From("")
	fs.Bool(&o.debugHooks, "debug-hooks", "serve /debug/mirror/pause and resume; for tests only")
}

// finish checks what needs more than one flag, and fills in what the kernel and
// the resolver know.
func (o *options) finish(ctx context.Context, fs *flags.Set) (err error) {
	if err = o.store.Choose(fs); err != nil {
		return err
	}
	if err = o.join(ctx, fs); err != nil {
		return err
	}
	if err = o.certs.Open(fs); err != nil {
		return err
	}
	if err = o.store.Resolve(fs, &o.certs); err != nil {
		if o.joining.dir != "" {
			err = fmt.Errorf("%w; if the cluster is rolled back to connections without TLS, remove %s", err, o.joining.dir)
		}
		return err
	}
	if o.asksNetmasters() {
		if err = o.findNetmasters(); err != nil {
			return err
		}
	}
	if o.netMode == "vlan" && len(o.uplinks) == 0 {
		return flags.Usagef("%s vlan needs --vlan-uplinks: the interfaces that carry VLAN networks", fs.Given("netmode"))
	}
	return o.finishHost(ctx, fs)
}

// finishHost fills in what the kernel and the resolver know, and reads the tokens.
func (o *options) finishHost(ctx context.Context, fs *flags.Set) (err error) {
	if err = o.identify(ctx); err != nil {
		return err
	}
	if o.fwdMode != "" {
		o.fwd = model.FwdMode(o.fwdMode)
	}
	if o.pvtSubnet != "" {
		if o.pvt, err = parsePvtSubnet(o.pvtSubnet); err != nil {
			return flags.Usagef("--private-subnet %q: %w", o.pvtSubnet, err)
		}
	}
	if o.token, err = transport.OpenTokens(o.tokenFile); err != nil {
		return flags.Usagef("%s: %w", fs.Given("token-file"), err)
	}
	if o.dockerToken, err = transport.OpenTokens(o.dockerTokenFile); err != nil {
		return flags.Usagef("%s: %w", fs.Given("docker-token-file"), err)
	}
	o.tls = o.certs.Config()
	if o.certs.Own != nil {
		if err := o.checkCertificate(fs); err != nil {
			return err
		}
	}
	if o.restAddress == "none" {
		o.restAddress = ""
	}
	return nil
}

// identify finds out this host's name and addresses.
func (o *options) identify(ctx context.Context) (err error) {
	if o.host == "" {
		if o.host, err = os.Hostname(); err != nil {
			return flags.Usagef("--host must be given: %w", err)
		}
	}
	if o.hostName, err = model.ParseHostName(o.host); err != nil {
		return flags.Usagef("--host must be given, since the kernel's host name cannot be used: %w", err)
	}
	for _, a := range []struct {
		flag, text string
		to         *netip.Addr
	}{{"ctrl-ip", o.ctrlIP, &o.ctrl}, {"vtep-ip", o.vtepIP, &o.vtep}} {
		text := a.text
		if text == "" && a.flag == "vtep-ip" && o.ctrlIP != "" {
			text = o.ctrlIP
		}
		if text == "" {
			if text, err = daemon.LocalAddress(ctx, func(why error) { o.unresolved = why }); err != nil {
				return flags.Usagef("--%s must be given: %w", a.flag, err)
			}
		}
		if *a.to, err = netip.ParseAddr(text); err != nil {
			return flags.Usagef("--%s %q: must be an IP address", a.flag, text)
		}
	}
	return nil
}

// checkCertificate refuses one that is not this host's, and netmasters that would be
// asked without it.
func (o *options) checkCertificate(fs *flags.Set) error {
	how, remedy := fs.Given("tls-dir"), fmt.Sprintf("issue one with 'netctl pki issue DIR %s --role host'", o.hostName)
	if how == "" {
		how, remedy = o.joining.dir, fmt.Sprintf("start it once with --join and --token, of 'netctl cluster token --host %s'", o.hostName)
	}
	if err := o.certs.Own.Check(nil, pki.Host); err != nil {
		return flags.Usagef("%s: %w", how, err)
	}
	if name := o.certs.Own.Leaf().Subject.CommonName; name != string(o.hostName) {
		return flags.Usagef("%s: the certificate belongs to host %s, and this is host %s; %s, or give --host", how, name, o.hostName, remedy)
	}
	var err error
	if o.netmaster, err = transport.Secure(o.netmaster, "9999"); err != nil {
		return flags.Usagef("%s: %w", fs.Given("netmaster"), err)
	}
	return nil
}

// checkAddresses refuses addresses that this host does not have: others would send there in
// vain.
func (o *options) checkAddresses() error {
	if !o.forwards() {
		return nil
	}
	for _, a := range []struct {
		flag string
		addr netip.Addr
	}{{"ctrl-ip", o.ctrl}, {"vtep-ip", o.vtep}} {
		if err := daemon.HasAddress(a.addr); err != nil {
			return flags.Usagef("--%s %q: %w", a.flag, a.addr, err)
		}
	}
	if o.vtep.IsLoopback() {
		return flags.Usagef("--vtep-ip %q: is loopback, where no other host finds this one; give an address of this host that others reach", o.vtep)
	}
	return nil
}

func checkURLs(v string) error {
	list := flags.Split(v)
	for _, s := range list {
		if !strings.Contains(s, "://") {
			s = "http://" + s
		}
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			list = nil
			break
		}
	}
	if len(list) == 0 {
		return errors.New("must be http://host:port, or several with commas")
	}
	return nil
}

func checkIP(v string) error {
	a, err := netip.ParseAddr(v)
	if err != nil || a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() {
		return errors.New("must be one IPv4 or IPv6 address of this host")
	}
	return nil
}

func checkInterfaces(v string) error {
	list := flags.Split(v)
	if len(list) == 0 {
		return errors.New("must name an interface")
	}
	for _, s := range list {
		if len(s) > 15 || strings.ContainsAny(s, "/ \t:") || s == "." || s == ".." {
			return fmt.Errorf("%q is not an interface name: at most 15 characters, no slash, colon or space", s)
		}
	}
	return nil
}

func parsePvtSubnet(v string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(v)
	if err != nil || !p.Addr().Is4() || p.Bits() != 16 || p.Masked() != p {
		return p, errors.New("must be an IPv4 /16 such as 172.19.0.0/16")
	}
	return p, nil
}

func checkPath(v string) error {
	if !filepath.IsAbs(v) {
		return errors.New("must be an absolute path")
	}
	return nil
}

func checkCgroup(v string) error {
	if v == cgroupNone {
		return nil
	}
	return checkPath(v)
}

// checkSocket knows that the kernel's limit is 108 bytes with the final zero (unix(7)).
func checkSocket(v string) error {
	if !filepath.IsAbs(v) || len(v) > 107 {
		return errors.New("must be an absolute path of at most 107 bytes")
	}
	return nil
}

func checkREST(v string) error {
	if v == "none" {
		return nil
	}
	return daemon.CheckHostPort(v)
}
