package aci_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci"
	"github.com/contiv/netplugin/v2/internal/netmaster/aci/acitest"
)

// TestObjectsFollowTheDesign has each object of Contiv be what the design's table says.
func TestObjectsFollowTheDesign(t *testing.T) {
	sim := newSim(t)
	before := sim.Tree()
	apply(t, newAPIC(t, sim), shop())
	const path, node = "topology/pod-1/paths-101/pathep-[eth1/14]", "topology/pod-1/node-102"
	want := map[string]string{ // class, and the properties that matter
		"uni/tn-blue":                                                                  "fvTenant name=blue",
		"uni/tn-blue/rsTenantMonPol":                                                   "fvRsTenantMonPol",
		"uni/tn-blue/svcCont":                                                          "vnsSvcCont",
		"uni/tn-blue/ctx-contiv":                                                       "fvCtx pcEnfPref=enforced",
		"uni/tn-blue/BD-net":                                                           "fvBD unicastRoute=yes arpFlood=yes unkMacUcastAct=flood",
		"uni/tn-blue/BD-net/rsctx":                                                     "fvRsCtx tnFvCtxName=contiv",
		"uni/tn-blue/ap-shop":                                                          "fvAp",
		"uni/tn-blue/ap-shop/epg-web":                                                  "fvAEPg",
		"uni/tn-blue/ap-shop/epg-db":                                                   "fvAEPg",
		"uni/tn-blue/ap-shop/epg-web/rsbd":                                             "fvRsBd tnFvBDName=net",
		"uni/tn-blue/ap-shop/epg-db/rsbd":                                              "fvRsBd tnFvBDName=net",
		"uni/tn-blue/flt-store:Frm:web":                                                "vzFilter",
		"uni/tn-blue/brc-store:Frm:web":                                                "vzBrCP scope=context",
		"uni/tn-blue/BD-net/subnet-[10.1.0.1/16]":                                      "fvSubnet",
		"uni/tn-blue/BD-net/subnet-[2001:db8::1/64]":                                   "fvSubnet",
		"uni/tn-blue/ap-shop/epg-web/rsdomAtt-[uni/phys-containers]":                   "fvRsDomAtt resImedcy=immediate",
		"uni/tn-blue/ap-shop/epg-db/rsdomAtt-[uni/phys-containers]":                    "fvRsDomAtt instrImedcy=immediate",
		"uni/tn-blue/ap-shop/epg-web/rspathAtt-[" + path + "]":                         "fvRsPathAtt encap=vlan-101 mode=regular",
		"uni/tn-blue/ap-shop/epg-db/rspathAtt-[" + path + "]":                          "fvRsPathAtt encap=vlan-102",
		"uni/tn-blue/ap-shop/epg-web/rsnodeAtt-[" + node + "]":                         "fvRsNodeAtt encap=vlan-101",
		"uni/tn-blue/ap-shop/epg-db/rsnodeAtt-[" + node + "]":                          "fvRsNodeAtt encap=vlan-102",
		"uni/tn-blue/ap-shop/epg-web/rscons-store:Frm:web":                             "fvRsCons",
		"uni/tn-blue/ap-shop/epg-web/rscons-internet":                                  "fvRsCons",
		"uni/tn-blue/ap-shop/epg-db/rsprov-store:Frm:web":                              "fvRsProv",
		"uni/tn-blue/brc-store:Frm:web/subj-store:Frm:web":                             "vzSubj revFltPorts=yes",
		"uni/tn-blue/brc-store:Frm:web/subj-store:Frm:web/rssubjFiltAtt-store:Frm:web": "vzRsSubjFiltAtt action=permit",
		"uni/tn-blue/flt-store:Frm:web/e-tcp-80":                                       "vzEntry etherT=ip prot=tcp dFromPort=http dToPort=http sFromPort=unspecified",
		"uni/tn-blue/flt-store:Frm:web/e-icmp":                                         "vzEntry prot=icmp dFromPort=unspecified",
		"uni/tn-blue/flt-store:Frm:web/e-icmpv6":                                       "vzEntry prot=icmpv6 dFromPort=unspecified",
	}
	got := lines(sim.Tree())
	for dn := range differences(before, sim.Tree()) {
		if want[dn] == "" {
			t.Errorf("made besides: %s %s", dn, got[dn])
		}
		implied := strings.HasPrefix(want[dn], "fvRsTenantMonPol") || strings.HasPrefix(want[dn], "vnsSvcCont")
		if marked := strings.Contains(got[dn], "annotation=orchestrator:contiv-one"); !marked && !implied {
			t.Errorf("%s is not marked: %s", dn, got[dn])
		}
	}
	for dn, w := range want {
		for part := range strings.FieldsSeq(w) {
			if !slices.Contains(strings.Fields(got[dn]), part) {
				t.Errorf("%s is %q, without %s", dn, got[dn], part)
			}
		}
	}
	if !permits(sim.Tree())["uni/tn-blue/ap-shop/epg-web may tcp http-http to uni/tn-blue/ap-shop/epg-db"] {
		t.Errorf("web may not: %v", permits(sim.Tree()))
	}
}

// A change of one thing writes that thing alone.
func TestOneChangeWritesOneThing(t *testing.T) {
	const epg, flt = "uni/tn-blue/ap-shop/epg-db", "uni/tn-blue/flt-store:Frm:web"
	for name, c := range map[string]struct {
		change func(*aci.Fabric)
		want   []string
	}{
		"a rule's port":       {func(f *aci.Fabric) { f.Rules[0].Port = 5432 }, []string{flt + "/e-tcp-5432", flt + "/e-tcp-80"}},
		"a rule more":         {func(f *aci.Fabric) { f.Rules = append(f.Rules, rule("store", "3", "web", model.ProtoUDP, 53)) }, []string{flt + "/e-udp-53"}},
		"a rule less":         {func(f *aci.Fabric) { f.Rules = f.Rules[:1] }, []string{flt + "/e-icmp", flt + "/e-icmpv6"}},
		"a rule's name":       {func(f *aci.Fabric) { f.Rules[0].Key.Rule = "other" }, nil},
		"the same again":      {func(f *aci.Fabric) { f.Rules = append(f.Rules, rule("store", "3", "web", model.ProtoTCP, 80)) }, nil},
		"a group's VLAN":      {func(f *aci.Fabric) { f.Groups[1].VLAN = 9 }, []string{epg + "/rsnodeAtt-[topology/pod-1/node-102]", epg + "/rspathAtt-[topology/pod-1/paths-101/pathep-[eth1/14]]"}},
		"no enforcement":      {func(f *aci.Fabric) { f.Settings.EnforcePolicies = false }, []string{"uni/tn-blue/ctx-contiv"}},
		"a gateway":           {func(f *aci.Fabric) { f.Networks[0].Gateway6 = f.Networks[0].Gateway6.Next() }, []string{"uni/tn-blue/BD-net/subnet-[2001:db8::1/64]", "uni/tn-blue/BD-net/subnet-[2001:db8::2/64]"}},
		"external of a group": {func(f *aci.Fabric) { f.Groups[0].ExtContracts = nil }, []string{"uni/tn-blue/ap-shop/epg-web/rscons-internet"}},
	} {
		t.Run(name, func(t *testing.T) {
			sim := newSim(t)
			a := newAPIC(t, sim)
			apply(t, a, shop())
			sim.Requests()
			f := shop()
			c.change(&f)
			apply(t, a, f)
			if got := writes(sim.Requests()); !slices.Equal(got, c.want) {
				t.Errorf("written: %q\nwant %q", got, c.want)
			}
		})
	}
}

// What one policy allowed and another allows instead is allowed at every moment.
func TestAllowedTrafficStaysAllowedThroughChanges(t *testing.T) {
	const may = "uni/tn-blue/ap-shop/epg-web may tcp http-http to uni/tn-blue/ap-shop/epg-db"
	sim := newSim(t)
	a := newAPIC(t, sim)
	apply(t, a, shop())
	f := shop()
	f.Groups[1].Policies = []model.PolicyName{"other"}
	f.Rules = []model.Rule{rule("other", "1", "web", model.ProtoTCP, 80)}
	sim.After = func(tree acitest.Tree, made acitest.Request) {
		if !permits(tree)[may] {
			t.Errorf("after %s %s: not let through", made.Method, made.Path)
		}
	}
	apply(t, a, f)
	for dn := range sim.Tree() {
		if strings.Contains(dn, "store:Frm:web") {
			t.Errorf("left: %s", dn)
		}
	}
}

// Unsupported parts are reported, and the rest is in force.
func TestUnsupportedPartsAreReported(t *testing.T) {
	f := shop()
	add := func(id string, change func(*model.Rule)) {
		r := rule("store", id, "web", model.ProtoTCP, 1000)
		change(&r)
		f.Rules = append(f.Rules, r)
	}
	add("net", func(r *model.Rule) { r.Group, r.Network = "", "net" })
	add("sctp", func(r *model.Rule) { r.Protocol = model.ProtoSCTP })
	add("zero", func(r *model.Rule) { r.Protocol, r.Port = 0, 0 })
	add("out", func(r *model.Rule) { r.Group, r.Direction = "", model.Out })
	add("loose", func(r *model.Rule) { r.Group = "alone" })
	add("deny", func(r *model.Rule) { r.Action = model.Deny })
	f.Groups = append(f.Groups, group("alone", 103))
	f.Profiles = append(f.Profiles, model.AppProfile{Key: model.AppProfileKey{Tenant: blue, Name: "zoo"}, Groups: []model.GroupName{"web"}})
	f.External[0].Contracts = append(f.External[0].Contracts, "internet", "uni/tn-green/brc-x", "uni/tn-blue/brc-none", "uni/tn-common/brc-gone", "uni/tn-common/brc-store:Frm:web")
	sim := newSim(t)
	a := newAPIC(t, sim)
	r, err := a.Apply(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	r, err = a.Apply(t.Context(), f) // what the APIC resolved shows when it is looked at
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"rule blue:store:net names a network", "rule blue:store:sctp names a port", "rule blue:store:zero names protocol 0", "rule blue:store:out lets endpoints out",
		"rule blue:store:loose group alone is in no app profile", "appProfile blue:zoo group web is in profile shop already",
		`endpointGroup blue:web external contract "internet" is not the DN`, "endpointGroup blue:web external contract uni/tn-green/brc-x is of another tenant",
		"endpointGroup blue:web external contract uni/tn-blue/brc-none does not exist", "endpointGroup blue:web external contract uni/tn-common/brc-gone does not exist",
		"endpointGroup blue:web external contract uni/tn-common/brc-store:Frm:web is hidden",
	} {
		i := slices.IndexFunc(r.Problems, func(p aci.Problem) bool { return strings.HasPrefix(p.Object+" "+p.Text, want) })
		if i < 0 {
			t.Errorf("no problem %q in %v", want, r.Problems)
			continue
		}
		r.Problems = slices.Delete(r.Problems, i, i+1)
	}
	if len(r.Problems) > 0 {
		t.Errorf("further: %v", r.Problems)
	}
	for p := range permits(sim.Tree()) {
		if strings.Contains(p, "1000") || strings.Contains(p, "unspecified-unspecified") && !strings.Contains(p, "icmp") {
			t.Errorf("let through: %s", p)
		}
	}
	if _, ok := sim.Tree()["uni/tn-blue/flt-store:Frm:web/e-tcp-80"]; !ok {
		t.Error("the rest is not in force")
	}
	f.Settings.PhysicalDomain = ""
	r, err = a.Apply(t.Context(), f)
	if err != nil || !slices.ContainsFunc(r.Problems, func(p aci.Problem) bool { return p.Object == "aciGw" }) {
		t.Errorf("without a domain: %v, %v", r.Problems, err)
	}
}

func TestInvalidObjectsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*aci.Fabric){
		"no VLAN":        func(f *aci.Fabric) { f.Groups[0].VLAN = 0 },
		"a VLAN twice":   func(f *aci.Fabric) { f.Groups[0].VLAN = f.Groups[1].VLAN },
		"no network":     func(f *aci.Fabric) { f.Networks = nil },
		"no group":       func(f *aci.Fabric) { f.Groups = f.Groups[:1] },
		"profile twice":  func(f *aci.Fabric) { f.Profiles = append(f.Profiles, f.Profiles[0]) },
		"profile's name": func(f *aci.Fabric) { f.Profiles[0].Key.Name = "a b" },
		"domain":         func(f *aci.Fabric) { f.Settings.PhysicalDomain = "a b" },
	} {
		f, sim := shop(), newSim(t)
		change(&f)
		if _, err := newAPIC(t, sim).Apply(t.Context(), f); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(sim.Requests()); n > 0 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
	for name, change := range map[string]func(*aci.APICConfig){
		"no URL":   func(c *aci.APICConfig) { c.URLs = nil },
		"password": func(c *aci.APICConfig) { c.URLs = []string{"https://a:b@apic"} },
		"scheme":   func(c *aci.APICConfig) { c.URLs = []string{"apic1"} },
		"nobody":   func(c *aci.APICConfig) { c.User = "" },
		"cluster":  func(c *aci.APICConfig) { c.Cluster = `a"b` },
	} {
		cfg := aci.APICConfig{URLs: []string{"https://apic1"}, User: "u", Password: "p", Cluster: "one"}
		change(&cfg)
		if _, err := aci.NewAPIC(cfg); !errors.Is(err, model.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Names that are too long for the APIC are cut, and stay apart.
func TestLongNamesAreCutAndDistinct(t *testing.T) {
	long := strings.Repeat("x", 63)
	f, sim := shop(), newSim(t)
	just := long[:65-len(":Frm:web")] // one too long
	f.Groups[1].Policies = []model.PolicyName{model.PolicyName(long + "a"), model.PolicyName(long + "b"), model.PolicyName(just)}
	f.Rules = []model.Rule{rule(long+"a", "1", "web", model.ProtoTCP, 1), rule(long+"b", "1", "web", model.ProtoTCP, 2), rule(just, "1", "web", model.ProtoTCP, 3)}
	apply(t, newAPIC(t, sim), f)
	n := 0
	for _, o := range sim.Tree() {
		if o.Class == "vzBrCP" && strings.HasPrefix(o.Props["name"], "xxx") {
			n++
		}
	}
	if n != 3 {
		t.Errorf("%d contracts", n)
	}
}

// What others have at the same place is left alone and told; what others have below
// ours keeps it.
func TestOtherOwnersObjectsAreLeftAlone(t *testing.T) {
	sim := newSim(t)
	a, b := newAPIC(t, sim), newAPIC(t, sim, func(c *aci.APICConfig) { c.Cluster = "two" })
	apply(t, a, shop())
	sim.Requests()
	if r, err := b.Apply(t.Context(), shop()); err != nil || len(r.Problems) != 4 || len(writes(sim.Requests())) > 0 {
		t.Errorf("a second cluster with the same names: %v, %v", r.Problems, err) // two groups, contract and filter
	}
	put(t, sim, "uni/tn-blue/ap-shop/epg-db/rsprov-backup", "fvRsProv")
	put(t, sim, "uni/tn-blue/out-wan", "l3extOut") // of a class that is not read
	r, err := a.Apply(t.Context(), aci.Fabric{Settings: settings()})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for dn, o := range sim.Tree() {
		if o.Props["annotation"] == "orchestrator:contiv-one" {
			left = append(left, dn)
		}
	}
	slices.Sort(left)
	if want := []string{"uni/tn-blue", "uni/tn-blue/ap-shop", "uni/tn-blue/ap-shop/epg-db", "uni/tn-blue/ap-shop/epg-db/rsbd"}; !slices.Equal(left, want) {
		t.Errorf("left: %q", left)
	}
	if len(r.Problems) != 3 || !strings.Contains(r.Problems[0].Text, "rsprov-backup") {
		t.Errorf("problems: %v", r.Problems)
	}
	for _, dn := range []string{"uni/tn-blue/ap-shop/epg-db/rsprov-backup"} {
		if err := sim.Delete(dn); err != nil {
			t.Fatal(err)
		}
	}
	r, err = a.Apply(t.Context(), aci.Fabric{Settings: settings()})
	if err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Text, "out-wan") {
		t.Errorf("%v, %v", r.Problems, err)
	}
	if _, ok := sim.Tree()["uni/tn-blue/ap-shop"]; ok {
		t.Error("the profile is still there")
	}
	if err := sim.Delete("uni/tn-blue/out-wan"); err != nil {
		t.Fatal(err)
	}
	apply(t, a, aci.Fabric{Settings: settings()})
	if _, ok := sim.Tree()["uni/tn-blue"]; ok {
		t.Error("the tenant is still there")
	}
}

// A contract or filter of ours that exists and is another's is not referred to: it
// would let through what somebody else says.
func TestUnmanagedContractIsNotReferredTo(t *testing.T) {
	const contract, filter = "uni/tn-blue/brc-store:Frm:web", "uni/tn-blue/flt-store:Frm:web"
	for dn, class := range map[string]string{contract: "vzBrCP", filter: "vzFilter"} {
		sim := newSim(t)
		put(t, sim, "uni/tn-blue", "fvTenant")
		put(t, sim, dn, class, "descr", "theirs")
		if class == "vzFilter" {
			put(t, sim, dn+"/e-all", "vzEntry", "etherT", "ip")
		}
		a := newAPIC(t, sim)
		r, err := a.Apply(t.Context(), shop())
		if err != nil || len(r.Problems) != 1 || r.Problems[0].Object != dn {
			t.Errorf("%s: %v, %v", class, r.Problems, err)
		}
		for at, o := range sim.Tree() {
			if o.Class == "fvRsProv" && class == "vzBrCP" || o.Class == "vzRsSubjFiltAtt" {
				t.Errorf("%s: refers to it: %s", class, at)
			}
		}
		if err := sim.Delete(dn); err != nil {
			t.Fatal(err)
		}
		apply(t, a, shop())
		if !permits(sim.Tree())["uni/tn-blue/ap-shop/epg-web may tcp http-http to uni/tn-blue/ap-shop/epg-db"] {
			t.Errorf("%s: not in force after it has gone", class)
		}
	}
}

// What somebody makes between the look and the write is not overwritten.
func TestConcurrentObjectsAreNotOverwritten(t *testing.T) {
	const dn = "uni/tn-blue/brc-store:Frm:web"
	sim := newSim(t)
	sim.Fault = func(r *http.Request) acitest.Fault {
		if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/brc-") {
			if _, ok := sim.Tree()[dn]; !ok {
				put(t, sim, dn, "vzBrCP", "scope", "global")
			}
		}
		return acitest.None
	}
	a := newAPIC(t, sim)
	if r, err := a.Apply(t.Context(), shop()); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := a.Apply(t.Context(), shop()); err != nil || len(r.Problems) != 1 {
		t.Errorf("%v, %v", r, err)
	}
	if o := sim.Tree()[dn]; o.Props["scope"] != "global" || o.Props["annotation"] != "" {
		t.Errorf("overwritten: %v", o.Props)
	}
}

// A refused object is reported, and nothing else waits for it: deletions are done.
func TestRefusedObjectDelaysNothing(t *testing.T) {
	sim := newSim(t)
	a := newAPIC(t, sim)
	apply(t, a, shop())
	f := shop()
	f.Rules = f.Rules[:1]
	f.Profiles[0].Key.Name = "ship"
	sim.Fault = func(r *http.Request) acitest.Fault {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/ap-ship.json") {
			r.URL.Path = "/api/mo/uni/tn-blue/nonsense-ship.json" // which it does not know
		}
		return acitest.None
	}
	r, err := a.Apply(t.Context(), f)
	if !errors.Is(err, model.ErrInvalid) || len(r.Problems) == 0 || !strings.Contains(err.Error(), "Invalid DN") {
		t.Errorf("%v, %v", r.Problems, err)
	}
	if _, ok := sim.Tree()["uni/tn-blue/flt-store:Frm:web/e-icmp"]; ok {
		t.Error("what is not allowed any more still is")
	}
	sim.Fault = nil
	apply(t, a, f)
}

// A session is renewed before it ends, replaced when it has ended, and logged out.
func TestSessionIsRenewedAndLoggedOut(t *testing.T) {
	sim := newSim(t)
	now := time.Unix(1_000_000, 0)
	sim.Now, sim.Idle, sim.Life = func() time.Time { return now }, 100*time.Second, 1000*time.Second
	a := newAPIC(t, sim)
	counts := func() map[string]int {
		out := map[string]int{}
		for _, r := range sim.Requests() {
			out[strings.TrimSuffix(strings.TrimPrefix(r.Path, "/api/"), ".json")]++
			if r.Status != http.StatusOK {
				out["refused"]++
			}
		}
		return out
	}
	apply(t, a, shop())
	if c := counts(); c["aaaLogin"] != 1 || c["aaaRefresh"] != 0 || c["refused"] != 0 {
		t.Errorf("at first: %v", c)
	}
	logins, refreshes := 0, 0
	for range 100 { // 4,000 s: four lives
		now = now.Add(40 * time.Second)
		apply(t, a, shop())
		c := counts()
		logins, refreshes = logins+c["aaaLogin"], refreshes+c["aaaRefresh"]
		if c["refused"] > 0 {
			t.Fatalf("after %d s: %v", now.Unix()-1_000_000, c)
		}
	}
	if logins < 3 || logins > 6 || refreshes < 30 {
		t.Errorf("%d logins, %d refreshes", logins, refreshes)
	}
	now = now.Add(200 * time.Second) // it ended for being idle
	apply(t, a, shop())
	sim.EndSessions() // somebody ended it
	counts()
	apply(t, a, shop())
	if c := counts(); c["aaaLogin"] != 1 || c["refused"] != 1 {
		t.Errorf("after its end: %v", c)
	}
	before := sim.Sessions()
	if a.Close(t.Context()); sim.Sessions() != before-1 {
		t.Error("not logged out")
	}
}

// Each failure of an APIC is reported and does no harm, and the fabric's next APIC is
// asked.
func TestNextAPICIsAskedAfterAFault(t *testing.T) {
	anything := func(*http.Request) bool { return true }
	for name, c := range map[string]struct {
		fault acitest.Fault
		want  string
	}{
		"503":      {acitest.Unavailable, "503"},
		"nonsense": {acitest.Nonsense, "cannot be read"},
		"empty":    {acitest.Empty, "cannot be read"},
		"cut":      {acitest.Cut, "does not answer"},
		"ended":    {acitest.Ended, "ends each session"},
		"slow":     {acitest.Slow, "does not answer"},
		"short":    {acitest.Short, "said to be"},
		"deaf":     {acitest.Ignored, "changes the objects"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := newSim(t)
			asked := map[string]int{}
			a := newAPIC(t, sim, func(cfg *aci.APICConfig) {
				cfg.URLs = []string{"https://apic1", "https://apic2"}
				inner := cfg.Transport
				cfg.Transport = transport(func(r *http.Request) (*http.Response, error) {
					asked[r.URL.Host]++
					return inner.RoundTrip(r)
				})
				if c.fault == acitest.Slow {
					cfg.Timeout = 50 * time.Millisecond
				}
			})
			if c.fault == acitest.Short { // of what there is
				apply(t, a, shop())
				sim.Requests()
			}
			sim.Fault = func(r *http.Request) acitest.Fault {
				if (c.fault == acitest.Ended || c.fault == acitest.Short) && strings.Contains(r.URL.Path, "aaaLogin") {
					return acitest.None
				}
				return firstly(1, c.fault, anything)(r)
			}
			_, err := a.Apply(t.Context(), shop())
			if !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), sim.Password) {
				t.Errorf("%v", err)
			}
			if len(writes(sim.Requests())) > 0 {
				t.Error("something was written")
			}
			sim.Fault = nil
			if c.fault == acitest.Slow { // its patience is too short for a busy machine
				a = newAPIC(t, sim)
				asked["apic2"] = 1
			}
			apply(t, a, shop())
			if c.fault != acitest.Ended && c.fault != acitest.Ignored && asked["apic2"] == 0 {
				t.Errorf("the other was not asked: %v", asked)
			}
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRefusedLoginIsReported(t *testing.T) {
	sim := newSim(t)
	a := newAPIC(t, sim, func(c *aci.APICConfig) { c.Password = "hunter2" })
	_, err := a.Apply(t.Context(), shop())
	if !errors.Is(err, model.ErrInvalid) || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "admin") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newAPIC(t, sim).Apply(ctx, shop()); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}
