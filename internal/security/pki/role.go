package pki

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
)

// Role is what the owner of a certificate is in the cluster: the organizational
// unit (OU) of its subject.
type Role string

// The roles that there are.
const (
	ClusterAdmin Role = "cluster-admin" // who runs netctl
	Netmaster    Role = "netmaster"     // also the embedded store
	Host         Role = "host"          // a netplugin; the certificate has the host's name
	Client       Role = "client"        // other programs: Prometheus, what Kubernetes runs
)

// Roles are all roles.
var Roles = []Role{ClusterAdmin, Netmaster, Host, Client}

// ParseRole reads a role's name.
func ParseRole(s string) (Role, error) {
	if r := Role(s); slices.Contains(Roles, r) {
		return r, nil
	}
	return "", fmt.Errorf("%q is not a role; give one of %s", s, join(Roles))
}

// RoleOf returns the role that a certificate has, by its subject alone: the chain
// was verified by the caller.
func RoleOf(cert *x509.Certificate) (Role, error) {
	for _, ou := range cert.Subject.OrganizationalUnit {
		if r := Role(ou); slices.Contains(Roles, r) {
			return r, nil
		}
	}
	return "", fmt.Errorf("the certificate of %q has no role: its subject needs an OU that is one of %s, as 'netctl pki issue' makes it", cert.Subject.CommonName, join(Roles))
}

// serves reports whether others connect to who has the role.
func (r Role) serves() bool { return r == Netmaster || r == Host }

func join(roles []Role) string {
	var s []string
	for _, r := range roles {
		s = append(s, string(r))
	}
	return strings.Join(s, ", ")
}
