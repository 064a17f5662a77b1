package server

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// Keys of the specification that are the runtime's business, or that mean nothing to
// the first plugin of a list.
var runtimeKeys = []string{
	"cniVersion", "cniVersions", "name", "type", "disableCheck", "disableGC", "loadOnlyInlinedPlugins",
	"capabilities", "args", "runtimeConfig", "prevResult",
}

// ourKeys are the options of contivk8s.
var ourKeys = []string{"tenant", "network", "group", "mtu", "labels", "ip", "socket", "stateDir"}

// idleKeys are reserved by the specification for options of other plugins, each with
// the reason why it would have no effect here. An empty or false value asks for nothing.
var idleKeys = map[string]string{
	"ipam":   "netmaster gives the addresses; ask for one with ip",
	"ipMasq": "netplugin translates the addresses of what leaves the cluster",
	"dns":    "netplugin's name server is in the result",
}

// idleCapabilities likewise, under runtimeConfig.
var idleCapabilities = map[string]string{
	"dns":            "netplugin's name server is in the result",
	"ipRanges":       "netmaster gives the addresses; ask for one with ip",
	"infinibandGUID": "the interfaces are Ethernet",
	"deviceID":       "the interfaces are virtual",
	"aliases":        "names come from the pod's name, its group and services",
}

// checkKeys refuses, for ADD, keys of an operator's configuration that would have no
// effect: a misspelt group would leave a container without policy. Keys with a dot
// or a slash belong to other programs and are let pass.
func checkKeys(data []byte) error {
	refuse := func(details string) error {
		return types.NewError(types.ErrInvalidNetworkConfig, "invalid network configuration", details)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil //nolint:nilerr // loadConf says what is wrong
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		why, idle := idleKeys[key]
		switch {
		case slices.Contains(runtimeKeys, key), slices.Contains(ourKeys, key), strings.ContainsAny(key, "./"), strings.HasPrefix(key, "_"):
		case idle && asksNothing(all[key]):
		case idle:
			return refuse(key + ": has no effect with contivk8s: " + why + "; leave it out")
		default:
			return refuse("unknown key " + quote(key) + "; those of contivk8s are " + strings.Join(ourKeys, ", "))
		}
	}
	var caps map[string]json.RawMessage
	if err := json.Unmarshal(all["runtimeConfig"], &caps); err != nil {
		return nil //nolint:nilerr // there is none, or loadConf says what is wrong
	}
	for _, key := range slices.Sorted(maps.Keys(caps)) {
		if why, idle := idleCapabilities[key]; idle && !asksNothing(caps[key]) {
			return refuse("runtimeConfig." + key + ": has no effect with contivk8s: " + why + `; leave it out of "capabilities"`)
		}
	}
	return nil
}

// asksNothing reports whether a value is false or empty.
func asksNothing(v json.RawMessage) bool {
	return slices.Contains([]string{"", "null", "false", "0", `""`, "[]", "{}"}, string(bytes.Join(bytes.Fields(v), nil)))
}
