package etcd

import (
	"errors"
	"strings"
)

// ParseFlag is ParseEndpoints for the value of a flag: the error says only what is allowed,
// since the caller names the flag and the value.
func ParseFlag(endpoints []string) ([]string, error) { return form.ParseFlag(endpoints) }

// CheckClusterStore checks the value that the documents of 2017 give to
// --cluster-store: one etcd://host:port.
func CheckClusterStore(v string) error {
	if !strings.HasPrefix(v, "etcd://") || strings.Contains(v, ",") {
		return errors.New("must be etcd://host:port or consul://host:port")
	}
	_, err := ParseFlag([]string{v})
	return err
}
