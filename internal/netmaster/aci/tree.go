package aci

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// class is what is known of a class of the APIC's objects.
type class struct {
	rank            int  // objects of a lower one are made before, and deleted after
	implicit        bool // the APIC makes it with its parent, and it goes with that alone
	withoutChildren bool // posted without its children: there may be many
	unmanaged       conflictAction
}

// conflictAction is what becomes of a wanted object that exists and is not ours.
type conflictAction int

const (
	refused conflictAction = iota // a problem, and nothing is put below it
	shared                        // ours are put below it
	used                          // it serves as it is, and nothing is put below it
)

// classes are all that are made; their names and properties are those of the APIC
// object model reference.
var classes = map[string]class{
	"fvTenant": {rank: 0, withoutChildren: true, unmanaged: shared},
	"fvCtx":    {rank: 1, unmanaged: used},
	"vzFilter": {rank: 2}, "vzEntry": {rank: 2},
	"vzBrCP": {rank: 3}, "vzSubj": {rank: 3}, "vzRsSubjFiltAtt": {rank: 3},
	"fvBD": {rank: 4, unmanaged: used}, "fvRsCtx": {rank: 4, implicit: true}, "fvSubnet": {rank: 4},
	"fvAp":   {rank: 5, withoutChildren: true, unmanaged: shared},
	"fvAEPg": {rank: 6}, "fvRsBd": {rank: 6, implicit: true}, "fvRsDomAtt": {rank: 6}, "fvRsPathAtt": {rank: 6},
	"fvRsNodeAtt": {rank: 6}, "fvRsProv": {rank: 6}, "fvRsCons": {rank: 6},
}

// readClasses are further classes that others may have put below ours, which are then
// not deleted.
var readClasses = []string{
	"fvRsConsIf", "fvRsProtBy", "fvRsIntraEpg", "fvRsSecInherited", "fvStCEp", "vzRsSubjGraphAtt", "vzInTerm", "vzOutTerm",
}

// object is a managed object: its properties without dn and annotation.
type object struct {
	class string
	props map[string]string
	ours  bool
	state string // of a relation, as the APIC resolved it
}

// tree is objects by their DN.
type tree map[string]object

// parent returns the DN above; brackets in a DN hold another one.
func parent(dn string) string {
	depth := 0
	for i := len(dn) - 1; i >= 0; i-- {
		switch dn[i] {
		case ']':
			depth++
		case '[':
			depth--
		case '/':
			if depth == 0 {
				return dn[:i]
			}
		}
	}
	return ""
}

func tenantDN(t model.TenantName) string { return "uni/tn-" + string(t) }

// vrf is the name of a tenant's one VRF.
const vrf = "contiv"

// maxNaming is the length limit of an object's name.
const maxNaming = 64

// nameOf is a contract's and its filter's name. Names of ours have no colon and no
// underscore: no two contracts have one name.
func nameOf(k contractKey) string {
	name := string(k.policy.Name) + ":" + string(k.kind)
	if k.kind != expose {
		name += ":" + string(k.peer)
	}
	if len(name) > maxNaming {
		sum := sha256.Sum256([]byte(name))
		name = name[:maxNaming-17] + "_" + hex.EncodeToString(sum[:8])
	}
	return name
}

func (t tree) add(dn, class string, props ...string) string {
	o := object{class: class, props: map[string]string{}, ours: true}
	for i := 0; i+1 < len(props); i += 2 {
		o.props[props[i]] = props[i+1]
	}
	t[dn] = o
	return dn
}

// tree returns what the APIC should have.
func (x *index) tree() tree {
	t := tree{}
	for _, p := range x.Profiles {
		tenant := t.add(tenantDN(p.Key.Tenant), "fvTenant", "name", string(p.Key.Tenant))
		enforce := "enforced"
		if !x.Settings.EnforcePolicies {
			enforce = "unenforced"
		}
		t.add(tenant+"/ctx-"+vrf, "fvCtx", "name", vrf, "pcEnfPref", enforce)
		ap := t.add(tenant+"/ap-"+p.Key.Name, "fvAp", "name", p.Key.Name)
		for _, g := range x.members(p) {
			t.addNetwork(x.networks[g.NetworkKey()])
			x.addGroup(t, ap, g)
		}
	}
	for _, c := range x.contracts() {
		x.addContract(t, c)
	}
	return t
}

func (t tree) addNetwork(n model.Network) {
	routed := "no"
	if n.Gateway.IsValid() || n.Gateway6.IsValid() {
		routed = "yes"
	}
	bd := t.add(tenantDN(n.Key.Tenant)+"/BD-"+string(n.Key.Name), "fvBD", "name", string(n.Key.Name),
		"arpFlood", "yes", "unkMacUcastAct", "flood", "unicastRoute", routed)
	t.add(bd+"/rsctx", "fvRsCtx", "tnFvCtxName", vrf)
	for _, cidr := range gateways(n) {
		t.add(bd+"/subnet-["+cidr+"]", "fvSubnet", "ip", cidr)
	}
}

// gateways returns the network's gateways, each as address/length.
func gateways(n model.Network) (out []string) {
	for _, g := range []struct {
		a netip.Addr
		p netip.Prefix
	}{{n.Gateway, n.Subnet}, {n.Gateway6, n.Subnet6}} {
		if g.a.IsValid() && g.p.IsValid() {
			out = append(out, netip.PrefixFrom(g.a, g.p.Bits()).String())
		}
	}
	return out
}

func (x *index) addGroup(t tree, ap string, g Group) {
	epg := t.add(ap+"/epg-"+string(g.Key.Name), "fvAEPg", "name", string(g.Key.Name))
	t.add(epg+"/rsbd", "fvRsBd", "tnFvBDName", string(g.Network))
	encap := fmt.Sprintf("vlan-%d", g.VLAN)
	if d := x.Settings.PhysicalDomain; d == "" {
		x.problem("aciGw", "no physical domain is set: the fabric binds no group to a port")
	} else {
		dn := "uni/phys-" + d
		t.add(epg+"/rsdomAtt-["+dn+"]", "fvRsDomAtt", "tDn", dn, "instrImedcy", "immediate", "resImedcy", "immediate")
		for _, dn := range x.Settings.PathBindings {
			t.add(epg+"/rspathAtt-["+dn+"]", "fvRsPathAtt", "tDn", dn, "encap", encap, "mode", "regular", "instrImedcy", "immediate")
		}
		for _, dn := range x.Settings.NodeBindings {
			t.add(epg+"/rsnodeAtt-["+dn+"]", "fvRsNodeAtt", "tDn", dn, "encap", encap, "mode", "regular", "instrImedcy", "immediate")
		}
	}
	for _, o := range x.externalContractsOf(g) {
		x.addOutside(t, epg, g, o)
	}
}

// outsideRE are DNs of contracts.
var outsideRE = regexp.MustCompile(`^uni/tn-([a-zA-Z0-9_.:-]{1,64})/brc-([a-zA-Z0-9_.:-]{1,64})$`)

// addOutside refers to a contract by name: the APIC looks for one in the tenant,
// then in tenant common.
func (x *index) addOutside(t tree, epg string, g Group, o externalContract) {
	m := outsideRE.FindStringSubmatch(o.dn)
	switch object := "endpointGroup " + g.Key.String(); {
	case m == nil:
		x.problem(object, "external contract "+strconv.Quote(o.dn)+" is not the DN of a contract, such as uni/tn-common/brc-web")
	case m[1] != string(g.Key.Tenant) && m[1] != "common":
		x.problem(object, "external contract "+o.dn+" is of another tenant: a group can have its tenant's and those of tenant common")
	default:
		x.outer = append(x.outer, externalReference{t.relate(epg, m[2], o.provided), m[2], o.dn, object})
	}
}

func (t tree) relate(epg, contract string, provides bool) (dn string) {
	rn, class := "/rscons-", "fvRsCons"
	if provides {
		rn, class = "/rsprov-", "fvRsProv"
	}
	return t.add(epg+rn+contract, class, "tnVzBrCPName", contract)
}

func (x *index) epgDN(g model.GroupKey) string {
	return tenantDN(g.Tenant) + "/ap-" + x.profile[g].Name + "/epg-" + string(g.Name)
}

func (x *index) addContract(t tree, c *contract) {
	tenant, name := tenantDN(c.key.policy.Tenant), nameOf(c.key)
	filter := t.add(tenant+"/flt-"+name, "vzFilter", "name", name)
	for _, e := range c.sorted() {
		t.addEntry(filter, e)
		if e.protocol == model.ProtoICMP { // in a rule it means both families
			t.addEntry(filter, entry{protocol: model.ProtoICMPv6})
		}
	}
	brc := t.add(tenant+"/brc-"+name, "vzBrCP", "name", name, "scope", "context")
	subject := t.add(brc+"/subj-"+name, "vzSubj", "name", name, "revFltPorts", "yes")
	t.add(subject+"/rssubjFiltAtt-"+name, "vzRsSubjFiltAtt", "tnVzFilterName", name, "action", "permit")
	for g := range c.providers {
		t.relate(x.epgDN(g), name, true)
	}
	for g := range c.consumers {
		t.relate(x.epgDN(g), name, false)
	}
}

func (t tree) addEntry(filter string, e entry) {
	rn, props := e.props()
	t.add(filter+"/e-"+rn, "vzEntry", append([]string{"name", rn}, props...)...)
}

// props returns the name of a filter's entry, which says what it lets through, and
// its properties.
func (e entry) props() (name string, props []string) {
	prot := "unspecified"
	if name = "any"; e.protocol != model.AnyProtocol {
		prot = strconv.Itoa(int(e.protocol))
		if name = prot; protocolNames[prot] != "" {
			prot, name = protocolNames[prot], protocolNames[prot]
		}
	}
	port := "unspecified"
	if e.port != 0 {
		port = strconv.Itoa(int(e.port))
		name += "-" + port
	}
	return name, []string{"etherT", "ip", "prot", prot, "sFromPort", "unspecified", "sToPort", "unspecified", "dFromPort", port, "dToPort", port}
}

// protocolNames and portNames are the constants of vz:Entry for numbers: the APIC
// takes either, and tells the name.
var (
	protocolNames = map[string]string{
		"1": "icmp", "2": "igmp", "6": "tcp", "8": "egp", "9": "igp", "17": "udp", "58": "icmpv6", "88": "eigrp", "89": "ospfigp", "103": "pim", "115": "l2tp",
	}
	portNames = map[string]string{"20": "ftpData", "22": "ssh", "25": "smtp", "53": "dns", "80": "http", "110": "pop3", "443": "https", "554": "rtsp"}
)

// same reports whether two values of a property mean the same.
func same(prop, a, b string) bool {
	names := map[string]string{}
	switch prop {
	case "prot":
		names = protocolNames
	case "sFromPort", "sToPort", "dFromPort", "dToPort":
		names = portNames
	}
	canon := func(v string) string {
		if n := names[v]; n != "" {
			return n
		}
		return v
	}
	return canon(a) == canon(b)
}

// subtreeClasses are what is read of a tenant.
func subtreeClasses() string {
	list := slices.Clone(readClasses)
	for c := range classes {
		list = append(list, c)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}
