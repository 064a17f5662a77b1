package translate

import (
	"fmt"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v3"
)

// KubeadmNamespace and KubeadmConfig name the ConfigMap in which kubeadm keeps what it
// was told of a cluster.
const (
	KubeadmNamespace = "kube-system"
	KubeadmConfig    = "kubeadm-config"
)

// Networking is which addresses a cluster was set up with, each at most one subnet of
// each family.
type Networking struct{ Pods, Services []netip.Prefix }

// Kubeadm reads a ConfigMap of kubeadm's; what it does not say stays empty.
func Kubeadm(data map[string]string) (n Networking, err error) {
	var c struct {
		Networking struct {
			PodSubnet     string `yaml:"podSubnet"`
			ServiceSubnet string `yaml:"serviceSubnet"`
		} `yaml:"networking"`
	}
	const at = "ConfigMap " + KubeadmNamespace + "/" + KubeadmConfig + ", ClusterConfiguration"
	if err := yaml.Unmarshal([]byte(data["ClusterConfiguration"]), &c); err != nil {
		return n, fmt.Errorf("%s: %w", at, err)
	}
	if n.Pods, err = subnets(c.Networking.PodSubnet); err != nil {
		return Networking{}, fmt.Errorf("%s: networking.podSubnet: %w", at, err)
	}
	if n.Services, err = subnets(c.Networking.ServiceSubnet); err != nil {
		return Networking{}, fmt.Errorf("%s: networking.serviceSubnet: %w", at, err)
	}
	return n, nil
}

// subnets reads what kubeadm takes: one subnet, or two of different families.
func subnets(text string) (out []netip.Prefix, err error) {
	if text == "" {
		return nil, nil
	}
	for s := range strings.SplitSeq(text, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(s))
		if err != nil || p.Bits() == 0 || p.Addr().Is4In6() {
			return nil, fmt.Errorf("%q is not a subnet", s)
		}
		if len(out) > 1 || len(out) == 1 && out[0].Addr().Is4() == p.Addr().Is4() {
			return nil, fmt.Errorf("%q has more than one subnet of a family", text)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
