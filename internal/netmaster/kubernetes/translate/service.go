package translate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv/netplugin/v2/internal/model"
)

// PoolClass is the loadBalancerClass of services that ask for an address of the pool by
// name; services without a class get one too, where there is a pool.
const PoolClass = "contiv.io/pool"

// labelProxyName is on services and slices that another program than the cluster's
// proxy serves.
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// Addressing is what a service's addresses depend on beside the service.
type Addressing struct {
	// DescribeOwner names the owner of an address that is no service's, a network or a node, in
	// words; empty = it has none.
	DescribeOwner func(netip.Addr) string
	// DescribeServiceOwner says which other service has it, as cluster address or at one of some
	// ports, or in which range of cluster addresses it lies.
	DescribeServiceOwner func(netip.Addr, []model.ServicePort) string
	External             []netip.Prefix // inside which external addresses must be
	Pool                 bool           // there is a pool of load balancers' addresses
	Given                []netip.Addr   // those of the pool that the service has; sorted
	// Network is where the service's pods are.
	Network model.NetworkKey
}

// Balanced reports whether a service is to get load balancer's addresses from the pool.
func (a Addressing) Balanced(in *corev1.Service) bool {
	class := in.Spec.LoadBalancerClass
	return a.Pool && in.Spec.Type == corev1.ServiceTypeLoadBalancer && served(in) && (class == nil || *class == PoolClass)
}

// served reports whether a service is one for the cluster's proxy.
func served(in *corev1.Service) bool {
	_, other := in.Labels[labelProxyName]
	_, headless := in.Labels[corev1.IsHeadlessService]
	if other || headless || in.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	return len(clusterAddrs(in)) > 0 && in.Spec.ClusterIP != corev1.ClusterIPNone
}

// hinted reports whether a service asks by annotation for hints of zones.
func hinted(in *corev1.Service) bool {
	mode, is := in.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if !is {
		mode = in.Annotations[corev1.AnnotationTopologyMode]
	}
	return mode == "Auto" || mode == "auto"
}

// clusterAddrs are a service's cluster addresses as it says them.
func clusterAddrs(in *corev1.Service) []string {
	if len(in.Spec.ClusterIPs) > 0 {
		return in.Spec.ClusterIPs
	}
	if in.Spec.ClusterIP != "" {
		return []string{in.Spec.ClusterIP}
	}
	return nil
}

// Families are those of which a service has cluster addresses.
func Families(in *corev1.Service) (v4, v6 bool) {
	for _, text := range clusterAddrs(in) {
		if a, err := netip.ParseAddr(text); err == nil {
			v4, v6 = v4 || a.Is4(), v6 || a.Is6()
		}
	}
	return v4, v6
}

// ServiceKey is the key of a service's row.
func ServiceKey(namespace, name string) model.ClusterServiceKey {
	return model.ClusterServiceKey{Namespace: model.NamespaceName(namespace), Name: name}
}

// Service says what a service means; nil where there is nothing to serve: one without
// cluster addresses, or labelled as such (headless), another name for something elsewhere (ExternalName),
// or another program's.
func (a Addressing) Service(in *corev1.Service) (*model.Service, []Problem) {
	if !served(in) {
		return nil, nil
	}
	var found problems
	out := &model.Service{Key: ServiceKey(in.Namespace, in.Name).ServiceKey(), Owner: model.OwnerKubernetes, Network: a.Network}
	for i, text := range clusterAddrs(in) {
		field := fmt.Sprintf("spec.clusterIPs[%d]", i)
		if addr, ok := a.address(field, text, nil, &found); ok {
			out.Addrs = append(out.Addrs, addr)
		}
	}
	slices.SortFunc(out.Addrs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	if n := len(out.Addrs); n > 2 || n == 2 && out.Addrs[0].BitLen() == out.Addrs[1].BitLen() {
		found.add("spec.clusterIPs", "a service has at most one address of each family: none is served")
		out.Addrs = nil
	}
	out.Ports = servicePorts(in, &found)
	a.balanced(in, out, &found)
	a.external(in, out, &found)
	out.Affinity = affinity(in, &found)
	outside := in.Spec.Type == corev1.ServiceTypeNodePort || in.Spec.Type == corev1.ServiceTypeLoadBalancer || len(in.Spec.ExternalIPs) > 0
	if p := in.Spec.InternalTrafficPolicy; p != nil {
		out.InsideLocal = local("spec.internalTrafficPolicy", string(*p), &found)
	}
	if p := in.Spec.ExternalTrafficPolicy; outside && p != "" {
		out.OutsideLocal = local("spec.externalTrafficPolicy", string(p), &found)
	}
	if p := in.Spec.HealthCheckNodePort; out.OutsideLocal && in.Spec.Type == corev1.ServiceTypeLoadBalancer && p > 0 && p < 65536 {
		out.HealthPort = uint16(p)
	}
	if hinted(in) {
		out.Near = model.NearZone
	}
	if d := in.Spec.TrafficDistribution; d != nil {
		switch *d {
		case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone:
			out.Near = model.NearZone
		case corev1.ServiceTrafficDistributionPreferSameNode:
			out.Near = model.NearNode
		default:
			found.add("spec.trafficDistribution", "%q is not known: all backends are chosen among", *d)
		}
	}
	return out, found
}

// address reads an address and says why it cannot be a service's; beyond is the service
// where it is not one by which only the cluster knows it.
func (a Addressing) address(field, text string, beyond *model.Service, found *problems) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	why := ""
	switch {
	case err != nil:
		why = "is no address"
	case !model.IsServiceAddr(addr):
		why = model.WantServiceAddr
	default:
		if why = a.DescribeOwner(addr); why == "" && beyond != nil {
			why = a.DescribeServiceOwner(addr, beyond.Ports)
		}
	}
	if why != "" {
		found.add(field, "%q %s: it is not served", text, why)
		return netip.Addr{}, false
	}
	return addr, true
}

// balanced enters a load balancer's addresses, and who may ask there.
func (a Addressing) balanced(in *corev1.Service, out *model.Service, found *problems) {
	if in.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	if a.Balanced(in) {
		out.Balanced = slices.Clone(a.Given)
	} else {
		for i, at := range in.Status.LoadBalancer.Ingress {
			if at.IP == "" || at.IPMode != nil && *at.IPMode != corev1.LoadBalancerIPModeVIP {
				continue // a name, or the balancer translates to node ports
			}
			if addr, ok := a.address(fmt.Sprintf("status.loadBalancer.ingress[%d].ip", i), at.IP, out, found); ok {
				out.Balanced = append(out.Balanced, addr)
			}
		}
		out.Balanced = addrSet("status.loadBalancer.ingress", out.Balanced, model.MaxBalancedAddrs, found)
	}
	out.OnlySources = len(in.Spec.LoadBalancerSourceRanges) > 0
	for i, text := range in.Spec.LoadBalancerSourceRanges {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil || p.Addr().Is4In6() {
			found.add(fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i), "%q is not a CIDR: it allows no client", text)
			continue
		}
		out.Sources = append(out.Sources, p.Masked())
	}
	slices.SortFunc(out.Sources, netip.Prefix.Compare)
	out.Sources = slices.Compact(out.Sources)
	if n := len(out.Sources); n > model.MaxBalancedPrefixes {
		found.add("spec.loadBalancerSourceRanges", "%d blocks, at most %d are possible: all are denied", n, model.MaxBalancedPrefixes)
		out.Sources = nil
	}
}

func (a Addressing) external(in *corev1.Service, out *model.Service, found *problems) {
	for i, text := range in.Spec.ExternalIPs {
		field := fmt.Sprintf("spec.externalIPs[%d]", i)
		addr, ok := a.address(field, text, out, found)
		switch {
		case !ok:
		case !slices.ContainsFunc(a.External, func(p netip.Prefix) bool { return p.Contains(addr) }):
			found.add(field, "%q is not inside netmaster's --external-ip-ranges: it is not served", text)
		default:
			out.External = append(out.External, addr)
		}
	}
	out.External = addrSet("spec.externalIPs", out.External, model.MaxExternalAddrs, found)
}

// addrSet are addresses sorted, each once, at most some.
func addrSet(field string, all []netip.Addr, most int, found *problems) []netip.Addr {
	slices.SortFunc(all, netip.Addr.Compare)
	all = slices.Compact(all)
	if n := len(all); n > most {
		found.add(field, "%d addresses, at most %d can be had: the lowest are served", n, most)
		all = all[:most]
	}
	return all
}

func servicePorts(in *corev1.Service, found *problems) (out []model.ServicePort) {
	for i, p := range in.Spec.Ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		proto, ok := protocolOf(p.Protocol)
		if !ok || p.Port < 1 || p.Port > 65535 || p.NodePort < 0 || p.NodePort > 65535 || !portsName(p.Name) {
			found.add(field, "is no port of TCP, UDP or SCTP: it is not served")
			continue
		}
		port := model.ServicePort{Name: p.Name, Protocol: proto, Port: uint16(p.Port)}
		if in.Spec.Type == corev1.ServiceTypeNodePort || in.Spec.Type == corev1.ServiceTypeLoadBalancer {
			port.Node = uint16(p.NodePort)
		}
		if slices.ContainsFunc(out, func(o model.ServicePort) bool { return model.CompareServicePorts(o, port) == 0 }) {
			found.add(field, "port %d of %s is there before: this one is not served", p.Port, proto)
			continue
		}
		out = append(out, port)
	}
	slices.SortFunc(out, model.CompareServicePorts)
	if n := len(out); n > model.MaxClusterPorts {
		found.add("spec.ports", "%d ports, at most %d can be had: the lowest of TCP, then of UDP and SCTP are served", n, model.MaxClusterPorts)
		out = out[:model.MaxClusterPorts]
	}
	return out
}

// portsName reports whether ports of services and slices may have a name.
func portsName(name string) bool {
	return model.Service{Key: ServiceKey("n", "s").ServiceKey(), Owner: model.OwnerKubernetes, Network: model.ClusterNetworkKey, Ports: []model.ServicePort{{Name: name, Protocol: model.ProtoTCP, Port: 1}}}.Validate() == nil
}

// affinity is for how many seconds a client stays with its backend.
func affinity(in *corev1.Service, found *problems) model.Affinity {
	switch in.Spec.SessionAffinity {
	case corev1.ServiceAffinityNone, "":
		return model.NoAffinity
	case corev1.ServiceAffinityClientIP:
	default:
		found.add("spec.sessionAffinity", "%q is not known: each connection is chosen for by itself", in.Spec.SessionAffinity)
		return model.NoAffinity
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if c := in.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	if seconds < 1 || int64(seconds) > int64(model.MaxAffinity) {
		found.add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "%d is not from 1 to %d: it is %d", seconds, model.MaxAffinity, corev1.DefaultClientIPServiceAffinitySeconds)
		seconds = corev1.DefaultClientIPServiceAffinitySeconds
	}
	return model.Affinity(seconds)
}

// local reads a traffic policy. One that is not known keeps to the client's node, which
// is the narrower.
func local(field, policy string, found *problems) bool {
	switch policy {
	case "Cluster":
		return false
	case "Local":
	default:
		found.add(field, "%q is not known: it is taken for Local", policy)
	}
	return true
}
