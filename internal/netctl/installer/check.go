package installer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

// Finding is one answer of a check.
type Finding struct {
	Check    string `json:"check"`    // user, systemd, packages, kernel, address, ports, time, firewall, cni, settings
	Severity string `json:"severity"` // OK, Warning or Error
	Text     string `json:"text"`
	Remedy   string `json:"remedy,omitempty"`
}

// Severities of findings. Errors keep the machine from being installed.
const (
	OK      = "ok"
	Warning = api.SeverityWarning
	Error   = api.SeverityError
)

// Check looks whether the machine can become what the plan says, and fills in the plan's
// host and address. It changes nothing.
func (m *Machine) Check(ctx context.Context, p *Plan) []Finding {
	var all []Finding
	add := func(check, severity, text, remedy string) {
		all = append(all, Finding{Check: check, Severity: severity, Text: text, Remedy: remedy})
	}
	if p.Host == "" {
		if name, err := os.Hostname(); err == nil {
			p.Host = name
		}
	}
	if m.os().root() {
		add("user", OK, "root", "")
	} else {
		add("user", Error, "you are not root", "run the command as root")
	}
	m.checkPackages(ctx, *p, add)
	m.checkKernel(add)
	m.checkAddress(ctx, p, add)
	if p.Address.IsValid() {
		m.checkPorts(ctx, *p, add)
	}
	m.checkClock(ctx, *p, add)
	m.checkFirewall(ctx, *p, add)
	m.checkCNI(add)
	if p.Address.IsValid() {
		m.checkSettings(ctx, *p, add)
	}
	return all
}

// Refused reports whether findings keep the machine from being installed.
func Refused(all []Finding) bool {
	return slices.ContainsFunc(all, func(f Finding) bool { return f.Severity == Error })
}

type adder func(check, severity, text, remedy string)

func (m *Machine) checkPackages(ctx context.Context, p Plan, add adder) {
	if !m.exists("/run/systemd/system") {
		add("systemd", Error, "systemd does not run on this machine", "start the programs by other means: docs/how-to/install.md#without-a-package-manager")
		return
	}
	add("systemd", OK, "it runs", "")
	for _, u := range p.units(false) {
		if _, err := m.os().run(ctx, "systemctl", "cat", u.name+".service"); err != nil {
			add("packages", Error, "the service "+u.name+" is not installed", fmt.Sprintf("apt-get install ./contiv-%s_*.deb", u.name))
			continue
		}
		add("packages", OK, u.name+" is installed", "")
	}
}

// The first kernel on which netplugin's eBPF programs run (docs/how-to/driver.md).
const kernelMajor, kernelMinor = 5, 17

func (m *Machine) checkKernel(add adder) {
	text, err := os.ReadFile(m.os().path("/proc/sys/kernel/osrelease"))
	if err != nil {
		add("kernel", Warning, err.Error(), "netplugin says at its start whether it can run")
		return
	}
	release := strings.TrimSpace(string(text))
	numbers := strings.FieldsFunc(release, func(r rune) bool { return r < '0' || r > '9' })
	var major, minor int
	if len(numbers) > 1 {
		major, _ = strconv.Atoi(numbers[0]) // digits; too many are no kernel's
		minor, _ = strconv.Atoi(numbers[1])
	}
	switch {
	case major > kernelMajor || major == kernelMajor && minor >= kernelMinor:
		add("kernel", OK, release+", for eBPF", "")
	case m.exists("/usr/sbin/ovs-vswitchd"):
		add("kernel", OK, release+", with Open vSwitch", "")
	default:
		add("kernel", Error, fmt.Sprintf("%s is older than %d.%d, and Open vSwitch is not installed", release, kernelMajor, kernelMinor), "apt-get install openvswitch-switch")
	}
}

// DataDir has netmaster's state.
const DataDir = "/var/lib/contiv/etcd"

// checkAddress finds the machine's address by the route to where others are.
func (m *Machine) checkAddress(ctx context.Context, p *Plan, add adder) {
	if p.Address.IsValid() {
		if err := m.os().free(ctx, "udp", net.JoinHostPort(p.Address.String(), "0")); err != nil {
			add("address", Error, p.Address.String()+" is no address of this machine", "give one that 'ip address' shows")
			p.Address = netip.Addr{}
			return
		}
		add("address", OK, p.Address.String(), "")
		return
	}
	for _, t := range append(slices.Clone(p.Join), "203.0.113.1:9", "[2001:db8::1]:9") { // nothing is sent there
		c, err := (&net.Dialer{}).DialContext(ctx, "udp", t)
		if err != nil {
			continue
		}
		from, err := netip.ParseAddrPort(c.LocalAddr().String())
		if e := c.Close(); err != nil || e != nil || from.Addr().IsLoopback() {
			continue
		}
		p.Address = from.Addr().Unmap()
		add("address", OK, p.Address.String()+", by the route to other machines", "")
		return
	}
	add("address", Error, "no route says which address of this machine others reach", "give it: --address 10.0.0.1")
}

func (m *Machine) checkPorts(ctx context.Context, p Plan, add adder) {
	if m.active(ctx, "netplugin") || p.begins() && m.active(ctx, "netmaster") {
		add("ports", OK, "Contiv runs already", "")
		return
	}
	taken := false
	for _, port := range p.tcpPorts() {
		host := p.Address.String()
		if port == "9006" {
			host = "127.0.0.1"
		}
		if err := m.os().free(ctx, "tcp", net.JoinHostPort(host, port)); errors.Is(err, syscall.EADDRINUSE) {
			taken = true
			add("ports", Error, "another program listens on port "+port+"/tcp", fmt.Sprintf("end it; 'ss -lntp sport = :%s' shows it", port))
		}
	}
	if err := m.os().free(ctx, "udp", net.JoinHostPort(p.Address.String(), "4789")); errors.Is(err, syscall.EADDRINUSE) {
		add("ports", Warning, "port 4789/udp is used: another network has VXLAN on this machine", "use another port on all hosts, with vxlan-port in /etc/contiv/netplugin.yaml")
	}
	if !taken {
		add("ports", OK, strings.Join(p.tcpPorts(), ", ")+" are free", "")
	}
}

func (m *Machine) checkClock(ctx context.Context, p Plan, add adder) {
	if p.begins() {
		if out, err := m.os().run(ctx, "timedatectl", "show", "--property=NTPSynchronized", "--value"); err == nil && out == "no" {
			add("time", Warning, "no time server sets the clock", "install one, such as chrony: certificates and tokens need clocks that agree")
			return
		}
		add("time", OK, time.Now().UTC().Format(time.RFC3339), "")
		return
	}
	for _, address := range p.Join {
		ahead, err := m.os().ahead(ctx, address, p.authority)
		switch {
		case err != nil:
			add("netmaster", Error, fmt.Sprintf("%s does not answer: %v", address, err), "check the address, and that firewalls let this port through")
		case ahead.Abs() > maxClockDifference:
			add("time", Error, fmt.Sprintf("this clock and the one of %s differ by %s", address, ahead.Abs().Round(time.Second)), "set the clocks: tokens and certificates need clocks that agree")
		default:
			add("netmaster", OK, address+" answers, and the clocks agree", "")
		}
	}
}

func (m *Machine) checkFirewall(ctx context.Context, p Plan, add adder) {
	ports := "4789/udp"
	if p.begins() {
		ports = "9005, 9999/tcp and 4789/udp"
	}
	for _, service := range []string{"firewalld", "ufw"} {
		if m.active(ctx, service) {
			add("firewall", Warning, service+" runs", "let other machines reach "+ports+": docs/how-to/ports.md")
			return
		}
	}
	add("firewall", OK, "neither firewalld nor ufw runs", "")
}

func (m *Machine) checkCNI(add adder) {
	var others []string
	entries, err := os.ReadDir(m.os().path("/etc/cni/net.d"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		add("cni", Warning, err.Error(), "")
		return
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); slices.Contains([]string{".conf", ".conflist", ".json"}, ext) && !strings.Contains(e.Name(), "contiv") {
			others = append(others, e.Name())
		}
	}
	if len(others) > 0 {
		add("cni", Warning, "/etc/cni/net.d has "+strings.Join(others, ", "), "runtimes take the first file by name: remove them before you use Contiv by CNI")
		return
	}
	add("cni", OK, "no other network is configured", "")
}

// checkSettings refuses a machine that was set up for something else.
func (m *Machine) checkSettings(ctx context.Context, p Plan, add adder) {
	for _, u := range p.units(m.hasDocker()) {
		has, err := m.settings(u)
		if err != nil {
			add("settings", Error, err.Error(), "mend the file, or remove it")
			continue
		}
		var other, lacks []string
		for _, s := range u.settings {
			switch is, there := has[s.key]; {
			case !there:
				lacks = append(lacks, s.key)
			case is != s.value:
				other = append(other, fmt.Sprintf("%s: %s instead of %s", s.key, is, s.value))
			}
		}
		switch {
		case len(other) > 0:
			add("settings", Error, fmt.Sprintf("%s has %s", u.file(), strings.Join(other, ", ")), "the machine was set up for something else: remove these lines, or Contiv")
		case len(lacks) > 0 && m.active(ctx, u.name):
			add("settings", Error, fmt.Sprintf("%s runs already, and %s lacks %s", u.name, u.file(), strings.Join(lacks, ", ")), "the machine belongs to a cluster: change its settings there, or remove Contiv")
		case len(lacks) > 0 && u.name == "netmaster" && m.exists(DataDir+"/member"):
			add("settings", Error, DataDir+" has the state of a cluster", "start netmaster as before, or delete the directory to begin a new cluster")
		default:
			add("settings", OK, u.file(), "")
		}
	}
}
