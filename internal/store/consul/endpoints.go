package consul

import (
	"errors"
	"strings"

	"github.com/contiv/netplugin/v2/internal/store"
)

// form is how Consul agents are named.
var form = store.EndpointForm{Flag: "consul-endpoints", Server: "Consul agent", Article: "a", Scheme: "consul", Port: "8500"}

// ParseEndpoints checks Consul's addresses and returns them as URLs. A bare
// host:port and consul:// (as the documents of 2017 have it) mean http://.
func ParseEndpoints(endpoints []string) ([]string, error) { return form.Parse(endpoints) }

// ParseFlag is ParseEndpoints for the value of a flag: the error says only what is allowed,
// since the caller names the flag and the value.
func ParseFlag(endpoints []string) ([]string, error) { return form.ParseFlag(endpoints) }

// IsClusterStore reports whether the value that the documents of 2017 give to
// --cluster-store names a Consul.
func IsClusterStore(v string) bool { return strings.HasPrefix(v, "consul://") }

// CheckClusterStore checks such a value: one consul://host:port.
func CheckClusterStore(v string) error {
	if strings.Contains(v, ",") {
		return errors.New("must be consul://host:port")
	}
	_, err := ParseFlag([]string{v})
	return err
}
