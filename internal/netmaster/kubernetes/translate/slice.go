package translate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/contiv/netplugin/v2/internal/model"
)

// SliceKey is the key of an EndpointSlice's row.
func SliceKey(namespace, name string) model.ServiceSliceKey {
	return model.ServiceSliceKey{Namespace: model.NamespaceName(namespace), Name: name}
}

// Slice says what an EndpointSlice means; nil where it is no served service's: without
// the label of its service, of a headless one, another program's, or of names and not
// of addresses.
func Slice(in *discoveryv1.EndpointSlice) (*model.ServiceSlice, []Problem) {
	_, headless := in.Labels[corev1.IsHeadlessService]
	_, other := in.Labels[labelProxyName]
	service := in.Labels[discoveryv1.LabelServiceName]
	if headless || other || service == "" || in.AddressType == discoveryv1.AddressTypeFQDN {
		return nil, nil
	}
	var found problems
	out := &model.ServiceSlice{Key: SliceKey(in.Namespace, in.Name), Service: service, Ports: slicePorts(in.Ports, &found)}
	v6 := in.AddressType == discoveryv1.AddressTypeIPv6
	if !v6 && in.AddressType != discoveryv1.AddressTypeIPv4 {
		found.add("addressType", "%q is not known: its endpoints are not used", in.AddressType)
		return out, found
	}
	for i, e := range in.Endpoints {
		field := fmt.Sprintf("endpoints[%d].addresses", i)
		if len(e.Addresses) == 0 {
			found.add(field, "is empty: it is no backend")
			continue
		}
		addr, err := netip.ParseAddr(e.Addresses[0]) // the API documents that consumers use the first one
		if err != nil || !model.IsServiceAddr(addr) || addr.Is6() != v6 {
			found.add(field, "%q is no %s address of a single machine: it is no backend", e.Addresses[0], in.AddressType)
			continue
		}
		out.Backends = append(out.Backends, backend(e, addr))
	}
	// Of two with one address the one that takes more counts.
	slices.SortStableFunc(out.Backends, func(a, b model.ServiceBackend) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.State, b.State)) // ready is empty, then draining
	})
	out.Backends = slices.CompactFunc(out.Backends, func(a, b model.ServiceBackend) bool { return a.Addr == b.Addr })
	if n := len(out.Backends); n > model.MaxSliceBackends {
		found.add("endpoints", "%d addresses, at most %d can be had: the lowest are backends", n, model.MaxSliceBackends)
		out.Backends = out.Backends[:model.MaxSliceBackends]
	}
	return out, found
}

func slicePorts(in []discoveryv1.EndpointPort, found *problems) (out []model.SlicePort) {
	for i, p := range in {
		field := fmt.Sprintf("ports[%d]", i)
		proto, ok := model.ProtoTCP, true
		if p.Protocol != nil {
			proto, ok = protocolOf(*p.Protocol)
		}
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		if !ok || p.Port == nil || *p.Port < 1 || *p.Port > 65535 || !portsName(name) {
			found.add(field, "is not a port of TCP, UDP or SCTP: it has no effect")
			continue
		}
		port := model.SlicePort{Name: name, Protocol: proto, Port: uint16(*p.Port)}
		if slices.ContainsFunc(out, func(o model.SlicePort) bool { return model.CompareSlicePorts(o, port) == 0 }) {
			found.add(field, "a port %q of %s is there before: this one is not asked", name, proto)
			continue
		}
		out = append(out, port)
	}
	slices.SortFunc(out, model.CompareSlicePorts)
	if n := len(out); n > model.MaxSlicePorts {
		found.add("ports", "%d ports, at most %d can be had: the first by name are", n, model.MaxSlicePorts)
		out = out[:model.MaxSlicePorts]
	}
	return out
}

func backend(e discoveryv1.Endpoint, addr netip.Addr) model.ServiceBackend {
	b := model.ServiceBackend{Addr: addr, State: stateOf(e.Conditions)}
	if r := e.TargetRef; r != nil && r.Kind == "Pod" {
		b.Pod = printed(string(r.UID))
	}
	if e.NodeName != nil {
		b.Node = nodeName(*e.NodeName)
	}
	if e.Zone != nil {
		b.Zone = printed(*e.Zone)
	}
	if e.Hints == nil {
		return b
	}
	for _, z := range e.Hints.ForZones {
		if z := printed(z.Name); z != "" && len(b.ForZones) < model.MaxHints && !slices.Contains(b.ForZones, z) {
			b.ForZones = append(b.ForZones, z)
		}
	}
	for _, n := range e.Hints.ForNodes {
		if n := nodeName(n.Name); n != "" && len(b.ForNodes) < model.MaxHints && !slices.Contains(b.ForNodes, n) {
			b.ForNodes = append(b.ForNodes, n)
		}
	}
	slices.Sort(b.ForZones)
	slices.Sort(b.ForNodes)
	return b
}

// stateOf reads conditions: unset is ready, and serving is what ready is.
func stateOf(c discoveryv1.EndpointConditions) model.ServiceBackendState {
	ready := c.Ready == nil || *c.Ready
	serving := ready
	if c.Serving != nil {
		serving = *c.Serving
	}
	switch {
	case ready: // also one that ends, of a service that publishes addresses that are not ready
		return model.ServiceBackendReady
	case serving && c.Terminating != nil && *c.Terminating:
		return model.ServiceBackendDraining
	}
	return model.ServiceBackendUnready
}

// nodeName is a node's name, empty where no node can have it.
func nodeName(s string) model.NodeName {
	n, err := model.ParseNodeName(s)
	if err != nil {
		return ""
	}
	return n
}

// printed is a text that rows may have, empty for one that they may not.
func printed(s string) string {
	if (model.ClusterNode{Name: "n", Zone: s}).Validate() != nil {
		return ""
	}
	return s
}

// Node says what services ask of a node.
func Node(in *corev1.Node) model.ClusterNode {
	out := model.ClusterNode{Name: model.NodeName(in.Name), Zone: printed(in.Labels[corev1.LabelTopologyZone])}
	for _, a := range in.Status.Addresses {
		if a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		if addr, err := netip.ParseAddr(a.Address); err == nil && model.IsServiceAddr(addr) {
			out.Addrs = append(out.Addrs, addr)
		}
	}
	out.Addrs = addrSet("status.addresses", out.Addrs, model.MaxNodeAddrs, new(problems))
	return out
}

// Ranges are the prefixes that services' addresses come from: those of ServiceCIDRs,
// and what a flag says. What cannot be read is left out.
func Ranges(in []*networkingv1.ServiceCIDR, flag []netip.Prefix) (out model.ServiceRanges) {
	out.Ranges = slices.Clone(flag)
	for _, c := range in {
		for _, text := range c.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil && p.Bits() > 0 && !p.Addr().Is4In6() {
				out.Ranges = append(out.Ranges, p.Masked())
			}
		}
	}
	slices.SortFunc(out.Ranges, netip.Prefix.Compare)
	out.Ranges = slices.Compact(out.Ranges)
	out.Ranges = out.Ranges[:min(len(out.Ranges), model.MaxServiceRanges)]
	return out
}
