package docker

import "testing"

// TestNetworkIsOtherwise: what is asked of a network that exists and is otherwise is refused.
func TestNetworkIsOtherwise(t *testing.T) {
	b := newBed(t)
	for _, tt := range []struct{ call, body, want string }{
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"net1","encap":"vlan"}}}`, "exists with encap vxlan, not vlan"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"net1","encap":"vxlan","pkt-tag":"8"}}}`, "exists with pkt-tag 7, not 8"},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"net1"}},"IPv6Data":[{"Pool":"fd00:2::/64"}]}`, "IPv6 subnet fd00:1::/64, not fd00:2::/64"},
	} {
		b.fails(tt.call, tt.body, 200, tt.want)
	}
	b.is("NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"net1","encap":"vxlan","pkt-tag":"7"}},"IPv6Data":[{"Pool":"fd00:1::/64"}]}`, `{}`)
}
