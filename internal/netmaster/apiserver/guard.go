package apiserver

import (
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// isOurName reports whether a DNS name is one of this server's: a configured one, or the
// name of a host of the cluster.
func (s *router) isOurName(name string) bool {
	if slices.ContainsFunc(s.allowed, func(h string) bool { return strings.EqualFold(strings.TrimSuffix(h, "."), name) }) {
		return true
	}
	_, known := s.control.Current().Hosts.Get(model.HostName(name))
	return known
}
