package etcd

import (
	"errors"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// ParseFlag is ParseEndpoints for the value of a flag: the error says only what
// is allowed, since whoever reads flags names the flag and the value.
func ParseFlag(endpoints []string) ([]string, error) {
	if len(endpoints) == 0 {
		return nil, errors.New("must name an etcd, such as http://127.0.0.1:2379")
	}
	out, err := ParseEndpoints(endpoints)
	if bad, ok := errors.AsType[*model.FieldError](err); ok {
		return nil, errors.New(bad.Want)
	}
	return out, err
}

// CheckClusterStore checks the value that the documents of 2017 give to
// --cluster-store: one etcd://host:port.
func CheckClusterStore(v string) error {
	if !strings.HasPrefix(v, "etcd://") || strings.Contains(v, ",") {
		return errors.New("must be etcd://host:port or consul://host:port")
	}
	_, err := ParseFlag([]string{v})
	return err
}
