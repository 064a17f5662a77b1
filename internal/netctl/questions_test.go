package netctl

import (
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// brokenCluster has a fault for each of the questions below. Host h1 is alive, h2 is away.
func brokenCluster(t *testing.T) (url string) {
	t.Helper()
	st := memory.New()
	url = startNetmasterOn(t, st)
	reg, err := cluster.Register(t.Context(), st, cluster.Service{ServiceName: cluster.ServiceAgent, HostAddr: "10.250.0.11", Port: 4789, Hostname: "h1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reg.Close() })
	run := func(line string) {
		t.Helper()
		args := strings.Split(line, " ")
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_", " ") // in rules
		}
		if r := netctl(t, url, args...); r.code != ExitOK {
			t.Fatalf("netctl %s: %+v", line, r)
		}
	}
	for _, line := range []string{
		"tenant create blue",
		"tenant create red",
		"network create -t blue -s 10.1.1.0/24 -g 10.1.1.254 n",
		"network create -t blue -s 10.1.2.0/24 far",
		"network create -t red -s 10.2.1.0/24 x",
		"policy create -t blue db-in",
		"policy create -t blue job-out",
		"policy create -t blue api-in",
		"policy create -t blue shadowed",
		"policy create -t blue late",
		"group create -t blue n web",
		"group create -t blue n db -p db-in",
		"group create -t blue n job -p job-out",
		"group create -t blue n api -p api-in",
		"group create -t blue n shadowed -p shadowed",
		"group create -t blue n late -p late",
		"policy rule-add -t blue -d in -g web -l tcp -P 5432 -j allow -p 10 db-in web",
		"policy rule-add -t blue -d in -j deny -p 1 db-in rest",
		"policy rule-add -t blue -d out -e db -j deny -p 5 job-out no-db",
		"policy rule-add -t blue -d out -s 0.0.0.0/0 -j deny -p 1 job-out no-internet",
		"policy rule-add -t blue -d in -l tcp -P 8080 -j allow -p 10 api-in http",
		"policy rule-add -t blue -d in -j deny -p 1 api-in rest",
		"policy rule-add -t blue -d in -l tcp -P 80 -j allow -p 2 shadowed http",
		"policy rule-add -t blue -d in -g web -j deny -p 9 shadowed first",
		"network-policy create -t blue -l app=cache --default-in deny cache-closed",
		"network-policy create -t blue -l app=shop --default-in deny -r in_allow_app=web_tcp/80 shop-in",
		"network-policy create -t blue -l app=audited --default-in deny audited-closed",
		"network-policy create -t blue -l app=audited --mode audit --order 1 --default-in allow audited-open",
		"network-policy create -t blue -l app=guarded --tier admin --default-in deny guard",
		"network-policy create -t blue -l app=guarded --default-in allow guarded-open",
		"network-policy create -t blue -l app=isolated --default-in deny --default-out deny isolated",
		"service create -t blue -s n -l app=none -p 80:80:tcp empty",
		"service create -t blue -s n -l app=db -p 3306:5432:tcp dbsvc",
		"service create -t blue -s n -l app=drained -p 80:80:tcp drained",
	} {
		run(line)
	}
	c, err := api.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, e := range []struct{ tenant, network, id, group, label, host string }{
		{"blue", "n", "web1", "web", "web", "h1"},
		{"blue", "n", "web2", "web", "wbe", "h1"},
		{"blue", "n", "db1", "db", "db", "h1"},
		{"blue", "n", "job1", "job", "job", "h1"},
		{"blue", "n", "api1", "api", "api", "h1"},
		{"blue", "n", "cache1", "", "cache", "h1"},
		{"blue", "n", "shop1", "", "shop", "h1"},
		{"blue", "n", "audited1", "", "audited", "h1"},
		{"blue", "n", "guarded1", "", "guarded", "h1"},
		{"blue", "n", "isolated1", "", "isolated", "h1"},
		{"blue", "n", "shadowed1", "shadowed", "", "h1"},
		{"blue", "n", "late1", "late", "", "h1"},
		{"blue", "n", "drained1", "", "drained", "h3"},
		{"blue", "n", "away1", "", "", "h2"},
		{"blue", "far", "far1", "", "", "h1"},
		{"red", "x", "red1", "", "", "h1"},
	} {
		req := api.CreateEndpointRequest{TenantName: e.tenant, NetworkName: e.network, EndpointID: e.id, ServiceName: e.group, ConfigEP: api.ConfigEP{Host: e.host}}
		if e.label != "" {
			req.ConfigEP.Labels = map[string]string{"app": e.label}
		}
		if _, err := c.CreateEndpoint(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	run("host drain h3")
	run("policy rule-add -t blue -d in -g web -j deny -p 9 late new --confirm-within 1h")
	return url
}

// TestWhyACannotReachB: at most two commands name the cause of each fault.
func TestWhyACannotReachB(t *testing.T) {
	url := brokenCluster(t)
	for _, q := range []struct {
		fault    string
		commands []string // the first asks why, the second looks closer
		want     []string // words that name the cause, of the last command
	}{
		{"a rule of the server's policy", []string{"can web1 db1 tcp/22"}, []string{"no:", "in: rule rest of policy blue:db-in"}},
		{"a rule of the client's policy", []string{"can job1 db1 tcp/5432"}, []string{"no:", "out: rule no-db of policy blue:job-out"}},
		{"a rule before the one that allows it", []string{"can web1 shadowed1 tcp/80"}, []string{"no:", "in: rule first of policy blue:shadowed"}},
		{"a policy that denies by default", []string{"can web1 cache1 tcp/6379"}, []string{"no:", "in: default of policy blue:cache-closed"}},
		{"a default for what an endpoint sends", []string{"can isolated1 web1 tcp/80"}, []string{"no:", "out: default of policy blue:isolated"}},
		{"a tier before the policy that allows it", []string{"can web1 guarded1 tcp/80", "explain guarded1"}, []string{"1. tier admin: the rest is denied (default of blue:guard)"}},
		{"a policy that is audited only", []string{"can web1 audited1 tcp/80", "explain audited1"}, []string{"Under audit, without effect: blue:audited-open", "default of blue:audited-closed"}},
		{"a label that is misspelt", []string{"can web2 shop1 tcp/80", "explain web2"}, []string{"app=wbe"}},
		{"another port", []string{"can web1 api1 tcp/80", "can web1 api1 tcp"}, []string{"yes      tcp/8080", "rule http of policy blue:api-in"}},
		{"another protocol", []string{"can web1 api1 udp/8080", "can web1 api1"}, []string{"yes      tcp/8080", "rule http of policy blue:api-in"}},
		{"networks that are not joined", []string{"can web1 far1 tcp/80"}, []string{"no:", "not-routed"}},
		{"another tenant", []string{"can web1 red1 tcp/80"}, []string{"no:", "other-tenant"}},
		{"no address of the family", []string{"can web1 2001:db8::1 tcp/443"}, []string{"no:", "no-address"}},
		{"an address without an endpoint", []string{"can web1 10.1.1.250 tcp/80"}, []string{"no:", "address-taken"}},
		{"an endpoint that is not there", []string{"can web1 gone1 tcp/80"}, []string{`endpoint "gone1" does not exist`}},
		{"a service without backends", []string{"can web1 service:empty tcp/80 -t blue"}, []string{"no:", "no-backend"}},
		{"a service on a drained host", []string{"can web1 service:drained -t blue", "explain drained1"}, []string{"blue:drained (draining)", "h3"}},
		{"a service whose backend denies it", []string{"can job1 service:dbsvc tcp/3306 -t blue"}, []string{"no:", "out: rule no-db of policy blue:job-out"}},
		{"a port that the service has not", []string{"can web1 service:dbsvc tcp/3307 -t blue", "can web1 service:dbsvc -t blue"}, []string{":3306"}},
		{"a port that is not published", []string{"can internet web1 tcp/443"}, []string{"no:", "not-exposed"}},
		{"a connection to the internet that a policy denies", []string{"can job1 internet tcp/443"}, []string{"no:", "out: rule no-internet of policy blue:job-out"}},
		{"a change that waits to be confirmed", []string{"can web1 late1 tcp/80", "pending"}, []string{"rule blue:late:new"}},
		{"a host that is away", []string{"can web1 away1 tcp/80", "host ls"}, []string{"h2", "away"}},
	} {
		var r result
		for _, line := range q.commands {
			r = netctl(t, url, strings.Fields(line)...)
		}
		for _, want := range q.want {
			if !strings.Contains(r.out+r.errOut, want) {
				t.Errorf("%s: netctl %s: %q is not in\n%s%s", q.fault, q.commands[len(q.commands)-1], want, r.out, r.errOut)
			}
		}
		if len(q.commands) > 2 {
			t.Errorf("%s: %d commands", q.fault, len(q.commands))
		}
	}
}
