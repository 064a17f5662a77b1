package netctl

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var testBuild = api.Version{Version: "2.0.0", GitCommit: "0123456789ab", BuildTime: "2026-11-20T12:00:00Z"}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// furnish fills a fake netmaster with something of everything.
func furnish(m *fakeMaster) {
	m.store("tenants", "blue", `{"key":"blue","tenantName":"blue","link-sets":{}}`)
	m.store("networks", "blue:backend", `{"key":"blue:backend","encap":"vxlan","gateway":"10.1.1.254","networkName":"backend","nwType":"data","subnet":"10.1.1.0/24","tenantName":"blue","link-sets":{},"links":{"Tenant":{"type":"tenant","key":"blue"}}}`)
	m.store("networks", "blue:office", `{"key":"blue:office","cfgdTag":"office-epg","encap":"vlan","ipv6Gateway":"2001:db8::1","ipv6Subnet":"2001:db8::/64","networkName":"office","nwType":"data","pktTag":100,"subnet":"10.2.0.10-10.2.0.99/16","tenantName":"blue","link-sets":{},"links":{"Tenant":{"type":"tenant","key":"blue"}}}`)
	m.store("networks", "default:default-net", `{"key":"default:default-net","encap":"vlan","networkName":"default-net","nwType":"data","subnet":"20.1.1.0/24","tenantName":"default","link-sets":{},"links":{"Tenant":{"type":"tenant","key":"default"}}}`)
	m.inspect["networks/blue:backend"] = `{"allocatedAddressesCount":1,"allocatedIPAddresses":"10.1.1.1, 10.1.1.254","availableIPAddresses":"10.1.1.2-10.1.1.253","externalPktTag":5000,"networkTag":"backend.blue","numEndpoints":1,"pktTag":1}`
	m.inspect["networks/default:default-net"] = `{"networkTag":"default-net.default","pktTag":7}`
	m.store("endpointGroups", "blue:web", `{"key":"blue:web","cfgdTag":"web-epg","groupName":"web","ipPool":"10.1.1.10-10.1.1.19","netProfile":"gold","networkName":"backend","policies":["web-in","audit"],"tenantName":"blue","link-sets":{},"links":{}}`)
	m.store("endpointGroups", "blue:app", `{"key":"blue:app","groupName":"app","networkName":"backend","tenantName":"blue","link-sets":{},"links":{}}`)
	m.store("policys", "blue:web-in", `{"key":"blue:web-in","policyName":"web-in","tenantName":"blue","link-sets":{},"links":{}}`)
	m.store("policys", "blue:audit", `{"key":"blue:audit","policyName":"audit","tenantName":"blue","link-sets":{},"links":{}}`)
	m.store("rules", "blue:web-in:rest", `{"key":"blue:web-in:rest","action":"deny","direction":"in","policyName":"web-in","priority":1,"ruleId":"rest","tenantName":"blue","link-sets":{},"links":{}}`)
	m.store("rules", "blue:web-in:http", `{"key":"blue:web-in:http","action":"allow","direction":"in","fromEndpointGroup":"app","policyName":"web-in","port":80,"priority":10,"protocol":"tcp","ruleId":"http","tenantName":"blue","link-sets":{},"links":{}}`)
	m.store("rules", "blue:web-in:some", `{"key":"blue:web-in:some","action":"allow","direction":"in","fromIpAddress":"192.0.2.0/24","policyName":"web-in","priority":1,"ruleId":"some","tenantName":"blue","link-sets":{},"links":{}}`)
	m.store("rules", "blue:web-in:out", `{"key":"blue:web-in:out","action":"allow","direction":"out","toNetwork":"office","policyName":"web-in","port":53,"priority":5,"protocol":"udp","ruleId":"out","tenantName":"blue","link-sets":{},"links":{}}`)
	m.store("rules", "blue:audit:1", `{"key":"blue:audit:1","action":"allow","direction":"in","policyName":"audit","priority":1,"ruleId":"1","tenantName":"blue","link-sets":{},"links":{}}`)
	m.store("netprofiles", "blue:gold", `{"key":"blue:gold","DSCP":10,"bandwidth":"100mbps","burst":200,"profileName":"gold","tenantName":"blue","link-sets":{},"links":{}}`)
	m.store("serviceLBs", "blue:shop", `{"key":"blue:shop","ipAddress":"10.1.1.100","networkName":"backend","ports":["80:8080:TCP"],"selectors":["app=web","tier=front"],"serviceName":"shop","tenantName":"blue","links":{}}`)
	m.inspect["serviceLBs/blue:shop"] = `{"numProviders":1,"serviceVip":"10.1.1.100"}`
	m.store("appProfiles", "blue:store", `{"key":"blue:store","appProfileName":"store","endpointGroups":["web","app"],"tenantName":"blue","link-sets":{},"links":{}}`)
	m.store("Bgps", "host1", `{"key":"host1","as":"65002","hostname":"host1","neighbor":"50.1.1.200","neighbor-as":"500","routerip":"50.1.1.1/24"}`)
	m.store("extContractsGroups", "blue:outside", `{"key":"blue:outside","contracts":["uni/tn-common/brc-dns","uni/tn-common/brc-ntp"],"contractsGroupName":"outside","contractsType":"consumed","tenantName":"blue","link-sets":{}}`)
	m.store("aciGws", "aciGw", `{"key":"aciGw","enforcePolicies":"yes","includeCommonTenant":"no","name":"aciGw","nodeBindings":"topology/pod-1/node-101","physicalDomain":"dom"}`)
	m.inspect["endpoints/web1"] = `{"key":"web1","containerName":"web1","endpointGroupId":257,"endpointGroupKey":"web:blue","endpointID":"3f0c","homingHost":"host1","ipAddress":["10.1.1.1",""],"labels":"map[a<b:c&d]","macAddress":"02:02:0a:01:01:01","network":"backend.blue","serviceName":"web"}`
	m.inspect["globals/global"] = `{"clusterMode":"none","numNetworks":3,"vlansInUse":"7, 100","vxlansInUse":"5000","endpointsToFollow":12,"formerLabels":["default","com.acme."]}`
}

// Every command that shows something prints exactly its golden.
func TestShowCommandsPrintTheirGolden(t *testing.T) {
	m := newFakeMaster(t)
	furnish(m)
	for _, line := range []string{
		"version",
		"version --json",
		"version -q",
		"global info -q",
		"tenant inspect -q blue",
		"--version",
		"global info",
		"global info --json",
		"global info -t blue -a -j",
		"global inspect",
		"tenant ls",
		"tenant list --json",
		"tenant ls -q",
		"tenant inspect blue",
		"network ls",
		"net ls --tenant blue",
		"net list -a",
		"network ls -a -q",
		"network ls -t blue -j",
		"network inspect -t blue backend",
		"group ls -t blue",
		"group ls --all --json",
		"group ls -t blue -q",
		"group inspect -t blue web",
		"policy ls -t blue",
		"policy ls -a -q",
		"policy ls -a -j",
		"policy inspect web-in -t blue",
		"policy rule-ls web-in -t blue",
		"policy rule-ls web-in -t blue -q",
		"policy rule-ls web-in -t blue -j",
		"endpoint inspect web1",
		"ep inspect web1",
		"netprofile ls -t blue",
		"netprofile ls -t blue -q",
		"netprofile list -a -j",
		"netprofile inspect -t blue gold",
		"service ls -t blue",
		"service ls -a -q",
		"service ls -a -j",
		"service inspect -t blue shop",
		"app-profile ls -t blue",
		"app-profile ls -a -q",
		"app-profile list -a -j",
		"app-profile group-ls -t blue store",
		"app-profile group-ls -t blue -q store",
		"app-profile group-list -t blue -j store",
		"bgp ls",
		"bgp ls -q",
		"bgp list -j",
		"bgp inspect host1",
		"external-contracts ls -t blue",
		"external-contracts ls -a -q",
		"external-contracts list -a -j",
		"aci-gw info",
		"aci-gw info -t blue -a -j",
		"aci-gw inspect",
	} {
		t.Run(strings.ReplaceAll(line, " ", "_"), func(t *testing.T) {
			got := netctl(t, m.url, strings.Fields(line)...)
			if got.code != ExitOK || got.errOut != "" {
				t.Fatalf("netctl %s: exit code %d, stderr %q", line, got.code, got.errOut)
			}
			golden(t, "show/"+strings.ReplaceAll(line, " ", "_"), got.out)
		})
	}
}

// Every command's help prints exactly its golden, by --help, -h and help alike.
func TestHelpIsTheGoldenInEveryForm(t *testing.T) {
	var walk func(c *command, path []string)
	walk = func(c *command, path []string) {
		name := strings.Join(append([]string{"netctl"}, path...), "_")
		t.Run(name, func(t *testing.T) {
			got := netctl(t, "", append(path, "--help")...)
			if got.code != ExitOK || got.errOut != "" {
				t.Fatalf("exit code %d, stderr %q", got.code, got.errOut)
			}
			golden(t, "help/"+name, got.out)
			for _, args := range [][]string{append(path, "-h"), append(path, "-help"), append([]string{"help"}, path...)} {
				if again := netctl(t, "", args...); again.out != got.out && !strings.Contains(got.out, "--version") {
					t.Errorf("netctl %s prints something else than --help:\n%s", strings.Join(args, " "), cmp.Diff(got.out, again.out))
				}
			}
		})
		for _, s := range c.subs {
			walk(s, append(append([]string{}, path...), s.name))
		}
	}
	walk(testTree(), nil)
}

// Each command that changes something sends exactly one request, with what was
// given and nothing else, and then says what was done.
func TestChangeCommandsSendOneRequest(t *testing.T) {
	const links = `"link-sets":{},"links":`
	for _, tc := range []struct {
		line string
		sent string
		out  string
	}{
		{
			"tenant create red",
			`POST /api/v1/tenants/red/ {"tenantName":"red","link-sets":{}}`,
			"Created tenant red\n",
		},
		{
			"tenant create blue -q",
			`POST /api/v1/tenants/blue/ {"tenantName":"blue","link-sets":{}}`,
			"blue\n",
		},
		{"tenant rm blue", `DELETE /api/v1/tenants/blue/`, "Deleted tenant blue\n"},
		{"tenant delete --json blue", `DELETE /api/v1/tenants/blue/`, "{\n  \"key\": \"blue\"\n}\n"},
		{
			"network create new -subnet 10.9.0.0/16",
			`POST /api/v1/networks/default:new/ {"encap":"vxlan","networkName":"new","nwType":"data","subnet":"10.9.0.0/16","tenantName":"default",` + links + `{"Tenant":{}}}`,
			"Created network default:new\n",
		},
		{
			"net create -t blue -n infra -e vlan -p 7 -s 10.9.0.0/16 -g 10.9.0.1 --s6 2001:db8:9::/64 -g6=2001:db8:9::1 -tag=x new",
			`POST /api/v1/networks/blue:new/ {"cfgdTag":"x","encap":"vlan","gateway":"10.9.0.1","ipv6Gateway":"2001:db8:9::1","ipv6Subnet":"2001:db8:9::/64","networkName":"new","nwType":"infra","pktTag":7,"subnet":"10.9.0.0/16","tenantName":"blue",` + links + `{"Tenant":{}}}`,
			"Created network blue:new\n",
		},
		{
			"network create -subnetv6 2001:db8:9::/64 six",
			`POST /api/v1/networks/default:six/ {"encap":"vxlan","ipv6Subnet":"2001:db8:9::/64","networkName":"six","nwType":"data","tenantName":"default",` + links + `{"Tenant":{}}}`,
			"Created network default:six\n",
		},
		{"network rm -t blue backend", `DELETE /api/v1/networks/blue:backend/`, "Deleted network blue:backend\n"},
		{
			"group create -t blue backend db -policy=db-policy --policy a,b",
			`POST /api/v1/endpointGroups/blue:db/ {"groupName":"db","networkName":"backend","policies":["db-policy","a","b"],"tenantName":"blue",` + links + `{"AppProfile":{},"NetProfile":{},"Network":{},"Tenant":{}}}`,
			"Created group blue:db\n",
		},
		{
			"group create -t blue -r 10.1.1.20-10.1.1.29 -n gold -e out --tag y backend web",
			`POST /api/v1/endpointGroups/blue:web/ {"cfgdTag":"y","extContractsGrps":["out"],"groupName":"web","ipPool":"10.1.1.20-10.1.1.29","netProfile":"gold","networkName":"backend","policies":["web-in","audit"],"tenantName":"blue",` + links + `{"AppProfile":{},"NetProfile":{},"Network":{},"Tenant":{}}}`,
			"Updated group blue:web\n",
		},
		{"group rm -t blue web", `DELETE /api/v1/endpointGroups/blue:web/`, "Deleted group blue:web\n"},
		{
			"policy create p1",
			`POST /api/v1/policys/default:p1/ {"policyName":"p1","tenantName":"default",` + links + `{"Tenant":{}}}`,
			"Created policy default:p1\n",
		},
		{
			"policy create -t blue audit",
			`POST /api/v1/policys/blue:audit/ {"policyName":"audit","tenantName":"blue",` + links + `{"Tenant":{}}}`,
			"Unchanged: policy blue:audit\n",
		},
		{"policy rm audit -t blue", `DELETE /api/v1/policys/blue:audit/`, "Deleted policy blue:audit\n"},
		{
			"policy rule-add -t blue web-in new",
			`POST /api/v1/rules/blue:web-in:new/ {"action":"allow","direction":"in","policyName":"web-in","priority":1,"ruleId":"new","tenantName":"blue",` + links + `{"MatchEndpointGroup":{}}}`,
			"Created rule blue:web-in:new\n",
		},
		{
			"policy rule-add -t blue web-in new -d in -p 100 -l tcp -P 8080 -g app -j deny",
			`POST /api/v1/rules/blue:web-in:new/ {"action":"deny","direction":"in","fromEndpointGroup":"app","policyName":"web-in","port":8080,"priority":100,"protocol":"tcp","ruleId":"new","tenantName":"blue",` + links + `{"MatchEndpointGroup":{}}}`,
			"Created rule blue:web-in:new\n",
		},
		{
			"policy rule-add -t blue web-in new -direction out --to-ip-address 2001:db8::/32",
			`POST /api/v1/rules/blue:web-in:new/ {"action":"allow","direction":"out","policyName":"web-in","priority":1,"ruleId":"new","tenantName":"blue","toIpAddress":"2001:db8::/32",` + links + `{"MatchEndpointGroup":{}}}`,
			"Created rule blue:web-in:new\n",
		},
		{"policy rule-rm -t blue web-in http -q", `DELETE /api/v1/rules/blue:web-in:http/`, "http\n"},
		{
			"netprofile create -t blue -b 10mbps -d 4 -s 20 --receive-bandwidth 5m --receive-burst 9 silver",
			`POST /api/v1/netprofiles/blue:silver/ {"DSCP":4,"bandwidth":"10mbps","burst":20,"receiveBandwidth":"5m","receiveBurst":9,"profileName":"silver","tenantName":"blue",` + links + `{"Tenant":{}}}`,
			"Created netprofile blue:silver\n",
		},
		{"netprofile rm -t blue gold", `DELETE /api/v1/netprofiles/blue:gold/`, "Deleted netprofile blue:gold\n"},
		{
			"service create -t blue -s backend -l app=web --selector=tier=front -p 80:8080:TCP --port=53:53:UDP --ip 10.1.1.9 new",
			`POST /api/v1/serviceLBs/blue:new/ {"ipAddress":"10.1.1.9","networkName":"backend","ports":["80:8080:TCP","53:53:UDP"],"selectors":["app=web","tier=front"],"serviceName":"new","tenantName":"blue","links":{"Network":{},"Tenant":{}}}`,
			"Created service blue:new\n",
		},
		{"service rm -t blue shop", `DELETE /api/v1/serviceLBs/blue:shop/`, "Deleted service blue:shop\n"},
		{
			"app-profile create -t blue -g web,app new",
			`POST /api/v1/appProfiles/blue:new/ {"appProfileName":"new","endpointGroups":["web","app"],"tenantName":"blue",` + links + `{"Tenant":{}}}`,
			"Created app-profile blue:new\n",
		},
		{
			"app-profile update -t blue -g web store",
			`POST /api/v1/appProfiles/blue:store/ {"appProfileName":"store","endpointGroups":["web"],"tenantName":"blue",` + links + `{"Tenant":{}}}`,
			"Updated app-profile blue:store\n",
		},
		{"app-profile delete -t blue store", `DELETE /api/v1/appProfiles/blue:store/`, "Deleted app-profile blue:store\n"},
		{
			"bgp create --router-ip 50.1.1.2/24 --as 65002 --neighbor-as 500 --neighbor 50.1.1.200 host2",
			`POST /api/v1/Bgps/host2/ {"as":"65002","hostname":"host2","neighbor":"50.1.1.200","neighbor-as":"500","routerip":"50.1.1.2/24"}`,
			"Created bgp host2\n",
		},
		{
			"bgp create --router-ip 50.1.1.2/24 --router-ip6 fd50::2/64 --as 65002 --neighbors fd50::201@501,fd50::202@502 host2",
			`POST /api/v1/Bgps/host2/ {"as":"65002","hostname":"host2","neighbor-as":"501","routerip":"50.1.1.2/24","routerip6":"fd50::2/64","neighbors":"fd50::201@501,fd50::202@502"}`,
			"Created bgp host2\n",
		},
		{"bgp rm host1", `DELETE /api/v1/Bgps/host1/`, "Deleted bgp host1\n"},
		{
			"external-contracts create -t blue -c -a uni/tn-common/brc-a -a uni/tn-common/brc-b new",
			`POST /api/v1/extContractsGroups/blue:new/ {"contracts":["uni/tn-common/brc-a","uni/tn-common/brc-b"],"contractsGroupName":"new","contractsType":"consumed","tenantName":"blue","link-sets":{}}`,
			"Created external-contracts blue:new\n",
		},
		{"external-contracts rm -t blue outside", `DELETE /api/v1/extContractsGroups/blue:outside/`, "Deleted external-contracts blue:outside\n"},
		{ // what is not given stays as it is
			"aci-gw set -d other -n=",
			`POST /api/v1/aciGws/aciGw/ {"enforcePolicies":"yes","includeCommonTenant":"no","name":"aciGw","physicalDomain":"other"}`,
			"Updated aci-gw aciGw\n",
		},
		{
			"global set --fwd-mode routing -v 10-20",
			`POST /api/v1/globals/global/ {"fwdMode":"routing","name":"global","vlans":"10-20"}`,
			"Set fwd-mode routing, vlan-range 10-20\n",
		},
		{
			"global set --generated-labels default,com.acme. --generated-labels build",
			`POST /api/v1/globals/global/ {"name":"global","generatedLabels":["default","com.acme.","build"]}`, "Set generated-labels default,com.acme.,build\n",
		},
		{
			"global set -f default -x 1-99 -b bridge -a flood -s 172.30.0.0/16 -q",
			`POST /api/v1/globals/global/ {"arpMode":"flood","fwdMode":"bridge","name":"global","networkInfraType":"default","pvtSubnet":"172.30.0.0/16","vxlans":"1-99"}`,
			"",
		},
	} {
		t.Run(tc.line, func(t *testing.T) {
			m := newFakeMaster(t)
			furnish(m)
			got := netctl(t, m.url, strings.Fields(tc.line)...)
			warns := ""
			if strings.Contains(tc.sent, `"action":"allow"`) && !strings.Contains(tc.sent, "Ip") {
				warns = "warning: rule new allows everything in direction in: it names no peer, protocol or port; 'netctl policy rule-rm -t blue web-in new' deletes it\n"
			}
			if diff := cmp.Diff(result{ExitOK, tc.out, warns}, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{tc.sent}, m.sent()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// --json prints the object as stored, which decodes into the wire shape.
func TestChangePrintsStoredObject(t *testing.T) {
	m := newFakeMaster(t)
	got := netctl(t, m.url, "network", "create", "--json", "--subnet", "10.9.0.0/16", "new")
	var n api.Network
	if err := json.Unmarshal([]byte(got.out), &n); err != nil || got.code != ExitOK {
		t.Fatalf("exit code %d, output %q, stderr %q: %v", got.code, got.out, got.errOut, err)
	}
	want := api.Network{Key: "default:new", NetworkName: "new", TenantName: "default", Subnet: "10.9.0.0/16", Encap: "vxlan", NwType: "data"}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Errorf("stored network (-want +got):\n%s", diff)
	}
}

// A failed change says nothing on stdout (1.x said "Deleting ..." before it
// failed) and the exit code tells the kind of failure.
func TestFailedChangePrintsNothingOnStdout(t *testing.T) {
	for _, tc := range []struct {
		line    string
		refuse  refusal
		request string
		code    int
		errOut  string
	}{
		{"tenant rm blue", refusal{http.StatusConflict, "delete tenant blue: it still holds network backend"}, "DELETE /api/v1/tenants/blue/", ExitConflict, "netctl: delete tenant blue: it still holds network backend\n"},
		{"tenant rm blue", refusal{http.StatusServiceUnavailable, "the store does not answer"}, "DELETE /api/v1/tenants/blue/", ExitUnavailable, "netctl: the store does not answer\n"},
		{"tenant create a_b", refusal{http.StatusBadRequest, `tenantName "a_b": must be letters`}, "POST /api/v1/tenants/a_b/", ExitFailure, "netctl: tenantName \"a_b\": must be letters\n"},
		{"tenant create red", refusal{http.StatusInternalServerError, ""}, "GET /api/v1/tenants/red/", ExitFailure, "netctl: netmaster answered 500 Internal Server Error\n"},
		{"tenant rm nosuch", refusal{}, "", ExitNotFound, "netctl: tenants nosuch does not exist\n"},
		{"tenant inspect nosuch", refusal{}, "", ExitNotFound, "netctl: tenants nosuch does not exist\n"},
		{"network ls -t nosuch", refusal{}, "", ExitNotFound, "netctl: tenants nosuch does not exist\n"},
		{"policy rule-ls nosuch", refusal{}, "", ExitNotFound, "netctl: policys default:nosuch does not exist\n"},
		{"network ls -a", refusal{http.StatusServiceUnavailable, "no"}, "GET /api/v1/inspect/networks/blue:backend/", ExitUnavailable, "netctl: no\n"},
		{"global set -f aci", refusal{http.StatusConflict, "no"}, "POST /api/v1/globals/global/", ExitConflict, "netctl: no\n"},
		{"global info", refusal{http.StatusServiceUnavailable, "no"}, "GET /api/v1/inspect/globals/global/", ExitUnavailable, "netctl: no\n"},
		{"app-profile update nosuch -g g", refusal{}, "", ExitNotFound, "netctl: appProfiles default:nosuch does not exist\n"},
		{"ep inspect c10", refusal{}, "", ExitNotFound, "netctl: endpoints c10 does not exist\n"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			m := newFakeMaster(t)
			furnish(m)
			if tc.request != "" {
				m.refuse[tc.request] = tc.refuse
			}
			got := netctl(t, m.url, strings.Fields(tc.line)...)
			if diff := cmp.Diff(result{tc.code, "", tc.errOut}, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A network deleted between listing and inspection is listed without a tag.
func TestNetworkListWhileDeleted(t *testing.T) {
	m := newFakeMaster(t)
	furnish(m)
	m.refuse["GET /api/v1/inspect/networks/blue:backend/"] = refusal{http.StatusNotFound, "gone"}
	got := netctl(t, m.url, "net", "ls", "-t", "blue")
	if got.code != ExitOK || !strings.Contains(got.out, "backend") {
		t.Errorf("exit code %d, output:\n%s%s", got.code, got.out, got.errOut)
	}
}

// TestOtherServersAreNotMissingObjects: the error distinguishes a server that is no netmaster from a missing
// object.
func TestOtherServersAreNotMissingObjects(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	r := netctl(t, srv.URL, "tenant", "ls")
	if r.code != ExitUnavailable || !strings.Contains(r.errOut, "no netmaster answers there") || !strings.Contains(r.errOut, "9999") {
		t.Errorf("%+v", r)
	}
}

// With no netmaster to talk to, the message names both ways of giving one;
// version still shows netctl's own.
func TestUnreachableNetmasterNamesTheFlags(t *testing.T) {
	const closed = "http://127.0.0.1:1"
	for line, out := range map[string]string{
		"tenant ls":         "",
		"tenant create red": "",
		"version":           "Client Version:\nVersion: 2.0.0\nGitCommit: 0123456789ab\nBuildTime: 2026-11-20T12:00:00Z\n",
	} {
		got := netctl(t, closed, strings.Fields(line)...)
		if got.code != ExitUnavailable || got.out != out {
			t.Errorf("netctl %s: exit code %d, output %q", line, got.code, got.out)
		}
		for _, part := range []string{closed, "--netmaster", "NETMASTER"} {
			if !strings.Contains(got.errOut, part) {
				t.Errorf("netctl %s: message %q does not name %s", line, got.errOut, part)
			}
		}
	}
}
