package translate

import (
	"fmt"
	"strings"
	"testing"
)

func TestPodNetworksAreReadFromKubeadm(t *testing.T) {
	const whole = "apiServer: {}\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.35.4\nnetworking:\n  dnsDomain: cluster.local\n"
	for _, x := range []struct{ name, text, want, wrong string }{
		{"nothing", "", "[] []", ""},
		{"no networking", "kind: ClusterConfiguration\n", "[] []", ""},
		{"services alone", whole + "  serviceSubnet: 10.96.0.0/12\n", "[] [10.96.0.0/12]", ""},
		{"IPv4", whole + "  podSubnet: 10.244.0.0/16\n  serviceSubnet: 10.96.0.0/12\n", "[10.244.0.0/16] [10.96.0.0/12]", ""},
		{"both families", whole + "  podSubnet: fd00:10:244::/56, 10.244.0.0/16\n  serviceSubnet: fd00:10:96::/112,10.96.0.0/12\n", "[fd00:10:244::/56 10.244.0.0/16] [fd00:10:96::/112 10.96.0.0/12]", ""},
		{"bits of a host", whole + "  podSubnet: 10.244.7.1/16\n", "[10.244.0.0/16] []", ""},
		{"no subnet", whole + "  podSubnet: 10.244.0.0\n", "", `podSubnet: "10.244.0.0" is not a subnet`},
		{"everything", whole + "  serviceSubnet: 0.0.0.0/0\n", "", `serviceSubnet: "0.0.0.0/0" is not a subnet`},
		{"two of a family", whole + "  podSubnet: 10.244.0.0/16,10.245.0.0/16\n", "", "more than one subnet of a family"},
		{"no YAML", "networking: [", "", "ConfigMap kube-system/kubeadm-config, ClusterConfiguration: "},
		{"a list", whole + "  podSubnet: [10.244.0.0/16]\n", "", "ClusterConfiguration: "},
	} {
		t.Run(x.name, func(t *testing.T) {
			n, err := Kubeadm(map[string]string{"ClusterConfiguration": x.text})
			if x.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), x.wrong) {
					t.Errorf("error %v, want %q", err, x.wrong)
				}
				return
			}
			if got := fmt.Sprint(n.Pods, " ", n.Services); err != nil || got != x.want {
				t.Errorf("%s (%v), want %s", got, err, x.want)
			}
		})
	}
}
