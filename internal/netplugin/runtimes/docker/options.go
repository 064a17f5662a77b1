package docker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// networkOptions are the options (-o) that a Docker network may be created with,
// addressOptions the options of its addresses (--ipam-opt).
var (
	networkOptions = []string{optTenant, optNetwork, optGroup, optEncap, optTag}
	addressOptions = []string{optTenant, optNetwork, optGroup}
)

// dockerPrefix begins the options that Docker itself has or adds.
const dockerPrefix = "com.docker.network."

// checkOptions refuses options that would have no effect, and those without a value: a
// variable of a script that is not set.
func checkOptions(flag string, options map[string]string, known []string) error {
	for _, k := range slices.Sorted(maps.Keys(options)) {
		switch {
		case slices.Contains(known, k) && strings.TrimSpace(options[k]) == "":
			return model.InvalidField(flag+" "+k, options[k], "must not be empty: give a value, or leave the option out")
		case slices.Contains(known, k):
		case k == dockerPrefix+"driver.mtu":
			return model.InvalidField(flag+" "+k, options[k], "has no effect: a Contiv network has the MTU that its hosts' underlay leaves it")
		case flag == "--ipam-opt" && strings.HasPrefix(k, dockerPrefix): // an order of the engine's to its own drivers
		default:
			return model.InvalidField(flag+" "+k, options[k], "is not known: there are "+strings.Join(known, ", "))
		}
	}
	return nil
}

// checkEndpointOptions refuses options of a container's endpoint (--network name=N,driver-opt=K=V):
// Contiv has none. Docker's own begin with com.docker.
func checkEndpointOptions(options map[string]any) error {
	for _, k := range slices.Sorted(maps.Keys(options)) {
		if !strings.HasPrefix(k, "com.docker.") {
			return model.InvalidField("driver-opt "+k, options[k], "has no effect: a container's group is the Docker network that it is connected to (docker run --network GROUP)")
		}
	}
	return nil
}

// checkReserved refuses addresses that are to be kept out, where the engine hands out the
// addresses: it would on this host alone.
func checkReserved(data []ipamData) error {
	for _, d := range data {
		ours := d.AddressSpace == spaceLocal || d.AddressSpace == spaceGlobal
		if len(d.AuxAddresses) > 0 && !ours {
			return model.InvalidField("--aux-address", strings.Join(slices.Sorted(maps.Keys(d.AuxAddresses)), ", "),
				"is not supported: this engine would reserve the addresses, and other hosts would still assign them. Omit it; 'netctl group create --ip-pool' sets a group's addresses")
		}
	}
	return nil
}

// checkInternal refuses networks without egress: Docker's flag would have no effect.
func checkInternal(options map[string]any) error {
	switch fmt.Sprint(options[keyInternal]) {
	case "true", "1":
		return model.InvalidField("--internal", "true",
			"is not supported: containers on Contiv's networks have egress by their host; omit it, and deny egress by policy ('netctl policy rule-add -d out -j deny')")
	}
	return nil
}
