package testcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sort"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// ContainerSpec says where a container runs and what it belongs to.
type ContainerSpec struct {
	Name    string            `json:"name"` // letters, digits and hyphens; unique in the lab
	Host    string            `json:"host"`
	Tenant  string            `json:"tenant"`
	Network string            `json:"network"`
	Group   string            `json:"group,omitempty"`
	Args    [][2]string       `json:"args,omitempty"` // CNI_ARGS; tenant, network, group and labels go by the configuration
	Labels  map[string]string `json:"labels,omitempty"`
	Ports   []PortMapping     `json:"ports,omitempty"`
	// Bandwidth is the CNI capability: ingressRate, ingressBurst, egressRate, egressBurst.
	Bandwidth map[string]uint64 `json:"bandwidth,omitempty"`
	Listen    []string          `json:"listen,omitempty"` // what Serve opens: "tcp/80", "udp/53"
}

// PortMapping is a port of the host that a container's runtime asks CNI for.
type PortMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol,omitempty"`
	HostIP        string `json:"hostIP,omitempty"`
}

// Attachment is a container with its interface, as the CNI library reported it.
type Attachment struct {
	ContainerSpec
	IPv4 netip.Addr `json:"ipv4,omitzero"`
	IPv6 netip.Addr `json:"ipv6,omitzero"`
	MAC  string     `json:"mac,omitempty"`
}

// ifName is the name of the interface inside a container.
const ifName = "eth0"

// nsExec runs CNI plugins inside a host's namespace; otherwise it is what the
// CNI library uses by default.
type nsExec struct {
	invoke.DefaultExec
	ns *Namespace
}

func newNSExec(ns *Namespace) *nsExec {
	return &nsExec{DefaultExec: invoke.DefaultExec{RawExec: &invoke.RawExec{}}, ns: ns}
}

// NewNSExec returns an executor of CNI plugins that runs them inside a namespace.
func NewNSExec(ns *Namespace) invoke.Exec { return newNSExec(ns) }

func (e *nsExec) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) (out []byte, err error) {
	return out, e.ns.Do(func() error {
		out, err = e.DefaultExec.ExecPlugin(ctx, path, stdin, env)
		return err
	})
}

// cni returns the CNI library set up for a host.
func (h *Host) cni() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir([]string{h.lab.st.Config.BinDir}, filepath.Join(h.Dir, "cni-cache"), newNSExec(h.NS))
}

// NetworkConfig is the CNI network configuration that the lab attaches a
// container with, by its tenant, network, group and labels, which may be empty.
func (h *Host) NetworkConfig(s ContainerSpec) (*libcni.NetworkConfigList, error) {
	plugin := map[string]any{"type": "contivk8s", "capabilities": map[string]bool{"portMappings": true, "bandwidth": true}, "socket": h.CNISocket(), "stateDir": h.StateDir()}
	for k, v := range map[string]string{"tenant": s.Tenant, "network": s.Network, "group": s.Group} {
		if v != "" {
			plugin[k] = v
		}
	}
	if len(s.Labels) > 0 {
		plugin["labels"] = s.Labels
	}
	b, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "name": "contiv", "plugins": []any{plugin}})
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromBytes(b)
}

// Status asks the CNI plugin on the host whether it can add containers.
func (h *Host) Status(ctx context.Context) error {
	list, err := h.NetworkConfig(ContainerSpec{})
	if err != nil {
		return err
	}
	return h.cni().GetStatusNetworkList(ctx, list)
}

func (l *Lab) containerSpace(name string) string { return prefix(l.st.Config.Name) + "c-" + name }

func (l *Lab) runtimeConf(s ContainerSpec) *libcni.RuntimeConf {
	c := &libcni.RuntimeConf{
		ContainerID: l.st.Config.Name + "-" + s.Name, IfName: ifName,
		NetNS: filepath.Join(netnsDir, l.containerSpace(s.Name)), Args: s.Args,
	}
	c.CapabilityArgs = map[string]any{}
	if len(s.Ports) > 0 {
		c.CapabilityArgs["portMappings"] = s.Ports
	}
	if s.Bandwidth != nil {
		c.CapabilityArgs["bandwidth"] = s.Bandwidth
	}
	return c
}

// AddNamespace makes a container's namespace without attaching it.
func (l *Lab) AddNamespace(name string) (*Namespace, error) {
	ns, err := newNamespace(l.containerSpace(name))
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spaces[name] = ns
	return ns, nil
}

// AddContainer makes a container's namespace and attaches it with a CNI ADD on
// its host. It returns when CNI has answered. A failed ADD is followed by a DEL, as
// runtimes do.
func (l *Lab) AddContainer(ctx context.Context, s ContainerSpec) (*Attachment, error) {
	if _, err := l.AddNamespace(s.Name); err != nil {
		return nil, err
	}
	res, err := l.CNIAdd(ctx, s)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("add container %s on %s: %w", s.Name, s.Host, err), l.DelContainer(ctx, s))
	}
	a, err := attachmentOf(s, res)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.st.Containers[s.Name] = a
	return a, l.save()
}

// cniOf returns a container's host and the networks that CNI attaches it to.
func (l *Lab) cniOf(s ContainerSpec) (*Host, *libcni.NetworkConfigList, error) {
	h, err := l.Host(s.Host)
	if err != nil {
		return nil, nil, err
	}
	list, err := h.NetworkConfig(s)
	return h, list, err
}

// CNIAdd runs CNI ADD for a container whose namespace exists.
func (l *Lab) CNIAdd(ctx context.Context, s ContainerSpec) (types.Result, error) {
	h, list, err := l.cniOf(s)
	if err != nil {
		return nil, err
	}
	return h.cni().AddNetworkList(ctx, list, l.runtimeConf(s))
}

// CNIDel runs CNI DEL for a container.
func (l *Lab) CNIDel(ctx context.Context, s ContainerSpec) error {
	h, list, err := l.cniOf(s)
	if err != nil {
		return err
	}
	return h.cni().DelNetworkList(ctx, list, l.runtimeConf(s))
}

// CNICheck runs CNI CHECK for a container that AddContainer attached.
func (l *Lab) CNICheck(ctx context.Context, s ContainerSpec) error {
	h, list, err := l.cniOf(s)
	if err != nil {
		return err
	}
	return h.cni().CheckNetworkList(ctx, list, l.runtimeConf(s))
}

// CNIGC runs CNI GC on a host: containers named stay, others that CNI attached go.
func (l *Lab) CNIGC(ctx context.Context, host string, valid ...string) error {
	h, list, err := l.cniOf(ContainerSpec{Host: host})
	if err != nil {
		return err
	}
	var args libcni.GCArgs
	for _, name := range valid {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: l.st.Config.Name + "-" + name, IfName: ifName})
	}
	return h.cni().GCNetworkList(ctx, list, &args)
}

// DelContainer runs CNI DEL and removes the container's namespace.
func (l *Lab) DelContainer(ctx context.Context, s ContainerSpec) error {
	err := l.CNIDel(ctx, s)
	if err != nil {
		err = fmt.Errorf("delete container %s on %s: %w", s.Name, s.Host, err)
	}
	return errors.Join(err, l.DropContainer(s.Name))
}

// DropContainer removes a container's namespace without a DEL, as when a
// runtime has lost it.
func (l *Lab) DropContainer(name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spaces[name].close()
	delete(l.spaces, name)
	delete(l.st.Containers, name)
	return errors.Join(removeNamespace(l.containerSpace(name)), l.save())
}

func attachmentOf(s ContainerSpec, res types.Result) (*Attachment, error) {
	r, err := current.NewResultFromResult(res)
	if err != nil {
		return nil, fmt.Errorf("read CNI result of %s: %w", s.Name, err)
	}
	a := &Attachment{ContainerSpec: s}
	for _, ip := range r.IPs {
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		if addr = addr.Unmap(); addr.Is4() {
			a.IPv4 = addr
		} else {
			a.IPv6 = addr
		}
	}
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			a.MAC = i.Mac
		}
	}
	return a, nil
}

// Containers returns all attached containers, by name.
func (l *Lab) Containers() []*Attachment {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*Attachment
	for _, a := range l.st.Containers {
		out = append(out, a)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Container returns an attached container.
func (l *Lab) Container(name string) (*Attachment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.st.Containers[name]; ok {
		return a, nil
	}
	return nil, fmt.Errorf("container %q: the lab has none of that name", name)
}

// Space returns the namespace of a container.
func (l *Lab) Space(container string) (*Namespace, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ns, ok := l.spaces[container]; ok {
		return ns, nil
	}
	return nil, fmt.Errorf("container %q: the lab has none of that name", container)
}

// Attach returns the client of a host's netplugin socket, below CNI.
func (h *Host) Attach() attach.Client { return attach.Client{Socket: h.CNISocket()} }

// Links returns the names of the links in a namespace, sorted.
func (n *Namespace) Links() (names []string, err error) {
	err = n.Do(func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			names = append(names, l.Attrs().Name)
		}
		sort.Strings(names)
		return err
	})
	return names, err
}
