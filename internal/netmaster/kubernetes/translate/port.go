package translate

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	policyv1beta1 "sigs.k8s.io/network-policy-api/apis/v1beta1"

	"github.com/contiv/netplugin/v2/internal/model"
)

// protocolOf reads a protocol; "" is TCP, as everywhere in Kubernetes.
func protocolOf(p corev1.Protocol) (model.Protocol, bool) {
	switch p {
	case corev1.ProtocolTCP, "":
		return model.ProtoTCP, true
	case corev1.ProtocolUDP:
		return model.ProtoUDP, true
	case corev1.ProtocolSCTP:
		return model.ProtoSCTP, true
	}
	return 0, false
}

func allPorts(p model.Protocol) model.PortMatch { return model.PortMatch{Protocol: p, Hi: 65535} }

// portRange is a range of ports, both ends included.
func portRange(p model.Protocol, lo, hi int32) (model.PortMatch, bool) {
	if lo < 1 || hi > 65535 || lo > hi {
		return model.PortMatch{}, false
	}
	return model.PortMatch{Protocol: p, Lo: uint16(lo), Hi: uint16(hi)}, true
}

// portNamed is a port by its name; false where no port can have that name.
func portNamed(p model.Protocol, name string) (model.PortMatch, bool) {
	ok := model.ValidateNamedPorts([]model.NamedPort{{Name: name, Protocol: p, Port: 1}}) == nil
	return model.PortMatch{Protocol: p, Name: name}, ok
}

// networkPolicyPort reads a port of a NetworkPolicy.
func networkPolicyPort(in networkingv1.NetworkPolicyPort) (model.PortMatch, bool) {
	proto, ok := model.ProtoTCP, true
	if in.Protocol != nil {
		proto, ok = protocolOf(*in.Protocol)
	}
	switch {
	case !ok:
		return model.PortMatch{}, false
	case in.Port == nil:
		return allPorts(proto), in.EndPort == nil
	case in.Port.Type == intstr.String:
		m, ok := portNamed(proto, in.Port.StrVal)
		return m, ok && in.EndPort == nil
	case in.EndPort != nil:
		return portRange(proto, in.Port.IntVal, *in.EndPort)
	}
	return portRange(proto, in.Port.IntVal, in.Port.IntVal)
}

// clusterPolicyPorts reads what a ClusterNetworkPolicy says of a protocol; false if
// not exactly one thing that is known.
func clusterPolicyPorts(in policyv1beta1.ClusterNetworkPolicyProtocol) ([]model.PortMatch, bool) {
	var out []model.PortMatch
	said := 0
	one := func(p model.Protocol, port *policyv1beta1.Port) bool {
		said++
		m, ok := clusterPolicyPort(p, port)
		out = append(out, m)
		return ok
	}
	if in.TCP != nil && !one(model.ProtoTCP, in.TCP.DestinationPort) ||
		in.UDP != nil && !one(model.ProtoUDP, in.UDP.DestinationPort) ||
		in.SCTP != nil && !one(model.ProtoSCTP, in.SCTP.DestinationPort) {
		return nil, false
	}
	if in.DestinationNamedPort != "" { // of whichever protocol
		said++
		for _, p := range []model.Protocol{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP} {
			if m, ok := portNamed(p, in.DestinationNamedPort); ok { // else no pod has such a port
				out = append(out, m)
			}
		}
	}
	return out, said == 1
}

func clusterPolicyPort(proto model.Protocol, in *policyv1beta1.Port) (model.PortMatch, bool) {
	switch {
	case in == nil:
		return allPorts(proto), true
	case (in.Number != 0) == (in.Range != nil):
		return model.PortMatch{}, false
	case in.Range != nil:
		return portRange(proto, in.Range.Start, in.Range.End)
	}
	return portRange(proto, in.Number, in.Number)
}
