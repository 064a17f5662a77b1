package docker

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What docker network create is asked for without effect, or without a value, is refused
// with the name of the option, and nothing is made.
func TestOptionsWithoutEffectOrValueAreRefused(t *testing.T) {
	b := newBed(t)
	before, err := b.c.Networks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known := b.p.networks.ids()
	for _, tt := range []struct{ call, body, want string }{
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":""}},"IPv4Data":[{"Pool":"10.9.9.0/24"}]}`, `-o network "": must not be empty`},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"n","tenant":" "}},"IPv4Data":[{"Pool":"10.9.9.0/24"}]}`, `-o tenant " ": must not be empty`},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"n","group":""}},"IPv4Data":[{"Pool":"10.9.9.0/24"}]}`, `-o group "": must not be empty`},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"n","encap":""}},"IPv4Data":[{"Pool":"10.9.9.0/24"}]}`, `-o encap "": must not be empty`},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"n","vlan":"7"}},"IPv4Data":[{"Pool":"10.9.9.0/24"}]}`, `-o vlan "7": is not known`},
		{"NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"n"}},"IPv4Data":[{"AddressSpace":"LocalDefault","Pool":"10.9.9.0/24","AuxAddresses":{"a":"10.9.9.5/24"}}]}`, `--aux-address "a": is not supported`},
		{"NetworkDriver.AllocateNetwork", `{"NetworkID":"n9","Options":{"network":""}}`, `-o network "": must not be empty`},
		{"IpamDriver.RequestPool", `{"AddressSpace":"contiv-local","Pool":"10.9.9.0/24","Options":{"network":"n","tenant":""}}`, `--ipam-opt tenant "": must not be empty`},
	} {
		b.fails(tt.call, tt.body, 200, tt.want)
	}
	if after, err := b.c.Networks(t.Context()); err != nil || len(after) != len(before) {
		t.Errorf("networks were made: %v, %v", after, err)
	}
	if diff := cmp.Diff(known, b.p.networks.ids()); diff != "" {
		t.Errorf("networks are remembered (-before +after):\n%s", diff)
	}
	// By this plugin's own addresses it is a reservation.
	b.is("NetworkDriver.CreateNetwork", `{"NetworkID":"n9","Options":{"com.docker.network.generic":{"network":"net1"}},"IPv4Data":[{"AddressSpace":"contiv-local","Pool":"10.1.1.0/24","AuxAddresses":{"a":"10.1.1.5/24"}}]}`, `{}`)
}
