package model

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// An infra network gives each host an endpoint of its own: an interface of the host
// named as the network.

// hostEndpoint ends the id of a host's own endpoint on an infra network, as in 1.x.
const hostEndpoint = "-native-intf"

// HostEndpoint is the id of a host's own endpoint on infra networks.
func HostEndpoint(h HostName) EndpointID { return EndpointID(string(h) + hostEndpoint) }

// OfHost reports whether an endpoint is a host's own one on an infra network.
func (id EndpointID) OfHost() bool { return strings.HasSuffix(string(id), hostEndpoint) }

// OfHost reports whether an endpoint is its host's own, on an infra network.
func (e Endpoint) OfHost() bool { return e.Host != "" && e.Key.ID == HostEndpoint(e.Host) }

// maxInterface is how many bytes the name of an interface may have.
const maxInterface = 15

// systemInterface matches the names of interfaces that distributions, container runtimes
// and other networks make by themselves.
var systemInterface = regexp.MustCompile("^(" + strings.Join([]string{
	`(docker|eth|wlan|bond|team|virbr|vmbr|vnet|lxcbr|lxdbr|cni|cbr|tunl|tun|tap|sit|gre|gretap|erspan|ip6tnl|ip6gre|ip_vti|ip6_vti|teql|dummy|ifb|wg|tailscale|podman|nerdctl|br|ib)[0-9].*`,
	`(en[opsx]|wl[ops]|ww[ops])[0-9].*`, `(br-|docker_|cilium_|ovs-|kube-|genev_sys_|vxlan_sys_|vxlan\.|flannel\.).*`, `(cali|veth)[0-9a-f]{4}.*`, `nodelocaldns|weave`,
}, "|") + ")$")

// validateInfra checks what only an infra network must not be: its name is an
// interface's on every host.
func (n Network) validateInfra() error {
	name := string(n.Key.Name)
	why := ""
	switch {
	case len(name) > maxInterface:
		why = fmt.Sprintf("must have at most %d bytes: each host gets an interface of that name", maxInterface)
	case slices.Contains([]string{"lo", "all", "default", ".", ".."}, name):
		why = "is a name that no interface can have, and each host gets one of the infra network's name"
	case systemInterface.MatchString(name):
		why = "is a name of interfaces that systems and runtimes make, and each host gets one of the infra network's name: choose another"
	case strings.HasPrefix(name, "contiv"), len(name) == maxInterface && slices.Contains([]string{"cv", "cw", "cq", "cp", "cs", "ct"}, name[:2]):
		why = "is a name of interfaces that netplugin makes, and each host gets one of the infra network's name"
	}
	switch {
	case why != "":
		return InvalidField("networkName", name, why)
	case n.Routed:
		return InvalidField("native", n.Routed, "is not for networks of nwType infra: hosts know a native network's containers already, and have no address on it")
	}
	return nil
}
