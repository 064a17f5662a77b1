package access

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/security/httpguard"
)

// people is a Bearer whose tokens are names.
type people map[string]Identity

func (p people) Takes(token string) bool { return strings.HasPrefix(token, "is-") }

func (p people) Identify(r context.Context, token string) (Identity, error) {
	id, ok := p[strings.TrimPrefix(token, "is-")]
	if !ok {
		return Identity{How: "people"}, httpguard.Unauthorized("nobody has that name")
	}
	return id, r.Err()
}

func somebody(name string, grants ...Grant) Identity {
	return Identity{Name: name, How: "people", Grants: grants}
}

var everybody = people{
	"root":   somebody("root", Grant{Role: ClusterAdmin}),
	"viewer": somebody("viewer", Grant{Role: Viewer}),
	"blue":   somebody("blue", Grant{Role: TenantAdmin, Tenants: []string{"blue"}}),
	"h1":     somebody("h1", Grant{Role: Host}),
	"master": somebody("master", Grant{Role: Netmaster}),
	"both":   somebody("both", Grant{Role: TenantAdmin, Tenants: []string{"green"}}, Grant{Role: Viewer}, Grant{Role: TenantAdmin, Tenants: []string{"blue"}}),
	"two":    somebody("two", Grant{Role: TenantAdmin, Tenants: []string{"green"}}, Grant{Role: TenantAdmin, Tenants: []string{"red"}}),
	"nobody": {Name: "nobody", How: "people", Note: "there is no group"},
	"odd":    somebody("odd", Grant{Role: "root"}),
	"chief":  somebody("chief", Grant{Role: TenantAdmin, Tenants: []string{"blue"}}, Grant{Role: ClusterAdmin}),
	"wrong":  somebody("wrong", Grant{Role: Host, Tenants: []string{"blue"}}),
}

// Who is also a viewer, or a cluster admin, reads of all tenants; a tenant admin of its own.
func TestIdentitiesReadTheirTenants(t *testing.T) {
	for who, want := range map[string][]string{"root": nil, "viewer": nil, "both": nil, "chief": nil, "h1": nil, "wrong": nil, "blue": {"blue"}, "two": {"green", "red"}} {
		if got := everybody[who].Scope(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", who, got, want)
		}
	}
}

// TestRolesReachTheirOwnResourcesOnly: a role has what its bits say, of resources that are its own; what is not
// known to be so is refused.
func TestRolesReachTheirOwnResourcesOnly(t *testing.T) {
	own := func(tenants ...string) Resource { return Resource{Tenants: tenants} }
	on := func(hosts ...string) Resource { return Resource{Hosts: hosts} }
	for _, tc := range []struct {
		who  string
		need Capability
		res  Resource
		want Role // empty = refused
	}{
		{"root", AdminOnly, Resource{}, ClusterAdmin},
		{"root", OwnTenants, own("red"), ClusterAdmin},
		{"root", OwnHost, on("h2"), ClusterAdmin},
		{"root", 0, Resource{}, ClusterAdmin},
		{"viewer", View | OwnTenants, own("red"), Viewer},
		{"viewer", OwnTenants, own("blue"), ""},
		{"viewer", AdminOnly, Resource{}, ""},
		{"viewer", 0, Resource{}, ""},
		{"blue", View | OwnTenants, own("blue"), TenantAdmin},
		{"blue", OwnTenants, own("blue", "blue"), TenantAdmin},
		{"blue", OwnTenants, own("blue", "red"), ""},
		{"blue", OwnTenants, own(""), ""},
		{"blue", OwnTenants, Resource{}, ""},
		{"blue", OwnTenants, Resource{Unowned: true}, ""},
		{"blue", OwnHost, on("blue"), ""},
		{"blue", View, own("blue"), ""},
		{"blue", View | WithinScope, own("red"), TenantAdmin},
		{"two", OwnTenants, own("green", "red"), TenantAdmin},
		{"two", OwnTenants, own("green", "blue"), ""},
		{"both", View | OwnTenants, own("red"), Viewer},
		{"both", OwnTenants, own("blue", "green"), TenantAdmin},
		{"both", OwnTenants, own("red"), ""},
		{"h1", OwnHost, on("h1"), Host},
		{"h1", OwnHost, on("h1", "h1"), Host},
		{"h1", OwnHost, on("h1", "h2"), ""},
		{"h1", OwnHost, on(""), ""},
		{"h1", OwnHost, Resource{}, ""},
		{"h1", OwnHost, Resource{Unowned: true}, Host},
		{"h1", OwnHost, Resource{Unowned: true, Hosts: []string{"h2"}}, ""},
		{"h1", AnyHost, on("h2"), Host},
		{"h1", OwnTenants, own("h1"), ""},
		{"h1", Peer, Resource{}, ""},
		{"master", Peer, Resource{}, Netmaster},
		{"master", AnyHost, Resource{}, ""},
		{"nobody", View, Resource{}, ""},
		{"odd", View, Resource{}, ""},
		{"odd", ^Capability(0), Resource{}, ""},
	} {
		role, err := everybody[tc.who].Authorize(tc.need, tc.res)
		if role != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s %b %+v: %q %v, want %q", tc.who, tc.need, tc.res, role, err, tc.want)
		}
		if err != nil && (httpguard.RefusalOf(err).Status != http.StatusForbidden || !strings.Contains(err.Error(), "has no right to")) {
			t.Errorf("%s: %v", tc.who, err)
		}
		if _, err := everybody[tc.who].CheckCapability(tc.need); err != nil && tc.want != "" {
			t.Errorf("%s may not ask for what it may: %v", tc.who, err)
		}
	}
}

// A refusal names the roles that would be enough; only programs see the roles of programs.
func TestRefusalsNameSufficientRoles(t *testing.T) {
	foreign := Resource{Tenants: []string{"red"}, Hosts: []string{"h2"}}
	hinted := Resource{Tenants: []string{"red"}, Hint: "ask for blue's"}
	for _, tc := range []struct {
		who  string
		need Capability
		res  Resource
		want string
	}{
		{"nobody", View, Resource{}, "nobody (people, without a role) has no right to anything: there is no group"},
		{"viewer", AdminOnly, Resource{}, "viewer (people, viewer) has no right to this; it needs the role cluster-admin"},
		{"viewer", OwnTenants | AnyHost, Resource{}, "viewer (people, viewer) has no right to this; it needs the role cluster-admin or tenant-admin of its tenant"},
		{"viewer", WithinScope | Peer, Resource{}, "viewer (people, viewer) has no right to this; it needs the role cluster-admin or tenant-admin"},
		{"blue", View | OwnHost, Resource{}, "blue (people, tenant-admin of blue) has no right to this; it needs the role cluster-admin or viewer"},
		{"blue", View | OwnTenants, foreign, "not found in tenant blue: blue (people, tenant-admin of blue) has no right to what others have; that needs the role cluster-admin, viewer or tenant-admin of its tenant"},
		{"blue", OwnTenants, hinted, "blue (people, tenant-admin of blue) has no right to this: ask for blue's; it needs the role cluster-admin or tenant-admin of its tenant"},
		{"h1", Peer, Resource{}, "h1 (people, host) has no right to this; it needs the role cluster-admin or netmaster"},
		{"h1", OwnHost, foreign, `h1 (people, host) has no right to this: it is about host "h2", and an agent may change what its own host has; it needs the role cluster-admin or host that has it`},
		{"h1", OwnHost, Resource{}, "h1 (people, host) has no right to this: it cannot be found out whose it is; it needs the role cluster-admin or host that has it"},
		{"master", OwnHost | View, Resource{}, "master (people, netmaster) has no right to this; it needs the role cluster-admin, viewer or host that has it"},
		{"master", AnyHost, Resource{}, "master (people, netmaster) has no right to this; it needs the role cluster-admin or host"},
	} {
		if _, err := everybody[tc.who].Authorize(tc.need, tc.res); err == nil || err.Error() != tc.want {
			t.Errorf("%s %b: %v, want %s", tc.who, tc.need, err, tc.want)
		}
	}
	if got := (Identity{}).String(); got != "nobody" {
		t.Errorf("an anonymous client is %s", got)
	}
}

func TestCheckCapabilityRefusesOtherRoles(t *testing.T) {
	if role, err := everybody["viewer"].CheckCapability(AdminOnly); err == nil || role != "" {
		t.Errorf("a viewer is let in as %q: %v", role, err)
	}
	if role, err := everybody["both"].CheckCapability(OwnTenants); err != nil || role != TenantAdmin {
		t.Errorf("a tenant admin is %q: %v", role, err)
	}
}

func TestUnknownRoutesAreForClusterAdmins(t *testing.T) {
	for who, want := range map[string]string{
		"root":   "",
		"viewer": "viewer (people, viewer) has no right to this: there is no such route for its role; it needs the role cluster-admin",
		"nobody": "nobody (people, without a role) has no right to anything: there is no group",
	} {
		role, err := everybody[who].CheckUnknownRoute()
		if (role == ClusterAdmin) != (want == "") || (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %q, %v, want %s", who, role, err, want)
		}
	}
}

func TestCapabilitiesOfOwnersNeedResources(t *testing.T) {
	for c := Capability(1); c <= Peer; c <<= 1 {
		if want := c == OwnTenants || c == OwnHost; c.NeedsResource() != want {
			t.Errorf("%b: %v, want %v", c, !want, want)
		}
		if c != OwnHost && !(c | OwnTenants).NeedsResource() {
			t.Errorf("%b with tenants needs no resource", c)
		}
	}
}
