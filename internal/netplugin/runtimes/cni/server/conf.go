package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni"
)

// conf is the network configuration: the specification's keys and ours, without the
// keys that only the plugin reads (socket, stateDir).
type conf struct {
	CNIVersion string            `json:"cniVersion"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Tenant     string            `json:"tenant"`
	Network    string            `json:"network"`
	Group      string            `json:"group"`
	MTU        int               `json:"mtu"`
	Labels     map[string]string `json:"labels"`
	IP         addresses         `json:"ip"`
	Prev       json.RawMessage   `json:"prevResult"`
	Valid      validList         `json:"cni.dev/valid-attachments"`
	Args       struct {
		CNI struct {
			IPs addresses `json:"ips"`
		} `json:"cni"`
		Mesos *MesosArgs `json:"org.apache.mesos"`
	} `json:"args"`
	RuntimeConfig struct {
		IPs   addresses     `json:"ips"`
		MAC   string        `json:"mac"`
		Ports []portMapping `json:"portMappings"`
		Rates bandwidth     `json:"bandwidth"`
	} `json:"runtimeConfig"`
}

// validList is what a runtime still has, and whether it says so at all: without a word
// of it nothing may be taken for lost.
type validList struct {
	given bool
	list  []types.GCAttachment
}

func (v *validList) UnmarshalJSON(b []byte) error {
	v.given = true // null too, as libcni writes an empty list
	return json.Unmarshal(b, &v.list)
}

// addresses is one address or a list of them, each with or without a prefix
// length (which the network decides, not the runtime).
type addresses []netip.Addr

func (a *addresses) UnmarshalJSON(b []byte) error {
	var list []string
	var one string
	if json.Unmarshal(b, &one) == nil {
		list = strings.FieldsFunc(one, func(r rune) bool { return r == ',' || r == ' ' })
	} else if json.Unmarshal(b, &list) != nil {
		return errors.New("must be an address or a list of addresses")
	}
	out, err := parseAddresses(list)
	*a = out
	return err
}

func parseAddresses(list []string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, s := range list {
		bare, _, _ := strings.Cut(s, "/")
		ip, err := netip.ParseAddr(bare)
		if err != nil || ip.Zone() != "" {
			return nil, errors.New("address " + quote(s) + ": must be an IPv4 or IPv6 address")
		}
		out = append(out, ip.Unmap())
	}
	return out, nil
}

func quote(s string) string {
	if len(s) > 80 {
		s = s[:77] + "..."
	}
	b, _ := json.Marshal(s) // a string cannot fail
	return string(b)
}

// loadConf decodes a network configuration. The error is one of the
// specification's.
func loadConf(data []byte) (conf, error) {
	var c conf
	if err := cni.Decode(data, &c); err != nil {
		return c, err
	}
	if c.MTU != 0 && (c.MTU < 576 || c.MTU > 65535) {
		return c, types.NewError(types.ErrInvalidNetworkConfig, "invalid network configuration",
			fmt.Sprintf("mtu %d: must be between 576 and 65535", c.MTU))
	}
	return c, nil
}

// loadArgs reads CNI_ARGS ("K=V;K=V") into the request: TENANT, NETWORK, GROUP,
// IP, MAC and NAME override the configuration, unless they are empty; the K8S_POD_* become
// name and labels.
// Unknown keys are refused unless IgnoreUnknown is set, as the convention has it. A key with
// two values always is. Multus repeats the kubelet's keys with the same values.
func loadArgs(args string, r *attach.Request) error {
	if args == "" {
		return nil
	}
	bad := func(details string) error {
		return types.NewError(types.ErrInvalidEnvironmentVariables, "invalid CNI_ARGS", details)
	}
	var unknown []string
	given := map[string]string{}
	ignore := false
	for pair := range strings.SplitSeq(args, ";") {
		if pair == "" {
			continue
		}
		k, v, ok := strings.Cut(pair, "=")
		if !ok {
			return bad(quote(pair) + " must be KEY=VALUE")
		}
		if k == "IgnoreUnknown" {
			switch strings.ToLower(v) {
			case "1", "true":
				v, ignore = "true", true
			case "0", "false":
				v = "false"
			default:
				return bad("IgnoreUnknown=" + quote(v) + " must be 1, true, 0 or false")
			}
		}
		if was, twice := given[k]; twice && was != v { // either one could be the policy that was meant
			return bad("key " + quote(k) + " is there twice with different values; it must have one")
		}
		given[k] = v
		switch k {
		case "TENANT":
			r.Tenant = cmp.Or(v, r.Tenant)
		case "NETWORK":
			r.Network = cmp.Or(v, r.Network)
		case "GROUP":
			r.Group = cmp.Or(v, r.Group) // a runtime's empty variable must not open what the configuration closes
		case "NAME":
			r.Name = v
		case "IP":
			ips, err := parseAddresses(strings.FieldsFunc(v, func(c rune) bool { return c == ',' }))
			if err != nil {
				return bad("IP: " + err.Error())
			}
			r.Addresses = ips
		case "MAC":
			if v == "" {
				continue
			}
			mac, err := model.ParseMAC(v)
			if err != nil {
				return bad("MAC=" + quote(v) + " must be six bytes such as 02:00:00:00:00:01")
			}
			r.MAC = mac
		case "K8S_POD_NAME", "K8S_POD_NAMESPACE", "K8S_POD_UID":
			if v != "" {
				if r.Labels == nil {
					r.Labels = map[string]string{}
				}
				r.Labels[podLabels[k]] = v
			}
			switch k {
			case "K8S_POD_NAME":
				r.Pod.Name = v
				r.Name = cmp.Or(r.Name, v)
			case "K8S_POD_NAMESPACE":
				r.Pod.Namespace = v
			case "K8S_POD_UID":
				r.Pod.UID = v
			}
		case "IgnoreUnknown", "K8S_POD_INFRA_CONTAINER_ID":
		default:
			unknown = append(unknown, k)
		}
	}
	if len(unknown) > 0 && !ignore {
		return bad("unknown key " + quote(unknown[0]) + "; known are TENANT, NETWORK, GROUP, IP, MAC, NAME, K8S_POD_*; IgnoreUnknown=1 accepts any")
	}
	return nil
}

// podLabels are the labels that hold the pod's name, namespace and so on, as a
// kubelet gives them.
var podLabels = map[string]string{
	"K8S_POD_NAME":      "io.kubernetes.pod.name",
	"K8S_POD_NAMESPACE": "io.kubernetes.pod.namespace",
	"K8S_POD_UID":       "io.kubernetes.pod.uid",
}

// request builds the attach request of an ADD.
func (c conf) request(in cni.Invocation) (attach.Request, error) {
	r := attach.Request{
		Key:   attach.Key{Container: in.Container, IfName: in.IfName},
		Netns: in.Netns, Tenant: c.Tenant, Network: c.Network, Group: c.Group,
		Labels: c.Labels, MTU: c.MTU, Source: attach.SourceCNI, Config: c.Name,
	}
	for _, ips := range []addresses{c.IP, c.Args.CNI.IPs, c.RuntimeConfig.IPs} {
		if len(ips) > 0 {
			r.Addresses = ips
		}
	}
	var err error
	if mac := c.RuntimeConfig.MAC; mac != "" {
		if r.MAC, err = model.ParseMAC(mac); err != nil {
			return r, types.NewError(types.ErrInvalidNetworkConfig, "invalid MAC address", "runtimeConfig.mac "+quote(mac)+": must be six bytes such as 02:00:00:00:00:01")
		}
	}
	if r.Rates, err = c.RuntimeConfig.Rates.rates(); err != nil {
		return r, err
	}
	mesos, err := c.mesosArgs(in)
	if err != nil {
		return r, err
	}
	if err := mesos.apply(&r); err != nil {
		return r, err
	}
	if err := loadArgs(in.Args, &r); err != nil {
		return r, err
	}
	families := map[bool]bool{}
	for _, ip := range r.Addresses {
		if families[ip.Is4()] {
			return r, types.NewError(types.ErrInvalidNetworkConfig, "invalid addresses",
				"ip: at most one IPv4 and one IPv6 address may be asked for")
		}
		families[ip.Is4()] = true
	}
	return r, nil
}
