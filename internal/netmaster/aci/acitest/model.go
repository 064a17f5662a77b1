package acitest

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// check returns a value as the APIC keeps it, or false when it refuses it.
type check func(v string) (kept string, ok bool)

func matches(expr string) check {
	re := regexp.MustCompile("^(?:" + expr + ")$")
	return func(v string) (string, bool) { return v, re.MatchString(v) }
}

// flags are a comma-separated set of words, or nothing.
func flags(words string) check { return matches(`(?:(?:` + words + `)(?:,(?:` + words + `))*)?`) }

// numbered are words or the numbers that they stand for; the APIC tells the word.
func numbered(most int, words map[string]string) check {
	return func(v string) (string, bool) {
		for _, w := range words {
			if v == w {
				return v, true
			}
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > most {
			return "", false
		}
		if w := words[strconv.Itoa(n)]; w != "" {
			return w, true
		}
		return strconv.Itoa(n), true
	}
}

var (
	text     = matches(`[a-zA-Z0-9\\!#$%()*,\-./:;@ _{|}~?&+]{0,128}`)
	naming   = matches(`[a-zA-Z0-9_.:\-]{1,64}`)
	ref      = matches(`[a-zA-Z0-9_.:\-]{0,64}`) // of a relation: may say nothing
	yesNo    = matches(`yes|no`)
	encap    = matches(`unknown|vlan-(?:[1-9]\d{0,2}|[1-3]\d{3}|40[0-8]\d|409[0-4])|vxlan-\d{1,8}`)
	immedcy  = matches(`immediate|lazy`)
	mode     = matches(`regular|native|untagged`)
	matchT   = matches(`All|AtleastOne|AtmostOne|None`)
	prio     = matches(`unspecified|level[1-6]`)
	dscp     = matches(`unspecified|CS[0-7]|AF[1-4][1-3]|EF|VA|\d{1,2}`)
	port     = numbered(65535, map[string]string{"0": "unspecified", "20": "ftpData", "22": "ssh", "25": "smtp", "53": "dns", "80": "http", "110": "pop3", "443": "https", "554": "rtsp"})
	protocol = numbered(255, map[string]string{
		"0": "unspecified", "1": "icmp", "2": "igmp", "6": "tcp", "8": "egp", "9": "igp", "17": "udp", "58": "icmpv6", "88": "eigrp", "89": "ospfigp", "103": "pim", "115": "l2tp",
	})
	gateway check = func(v string) (string, bool) {
		p, err := netip.ParsePrefix(v)
		return v, err == nil && p.Bits() > 0
	}
)

// class is a class of managed objects: what the object model reference says of it.
type class struct {
	rn       string // with the naming property in braces, such as "tn-{name}"
	parents  string // by blanks
	props    map[string]check
	defaults map[string]string
	implicit string // children that come and go with it, by blanks
	target   string // of a named relation: the RN's prefix of what it refers to
	fixed    bool   // comes and goes with its parent alone
}

func with(props map[string]check, more ...any) map[string]check {
	out := map[string]check{"annotation": matches(`[a-zA-Z0-9=!#$%()*,\-.:;@ _{|}~?&+]{0,128}`), "descr": text, "nameAlias": ref, "ownerKey": text, "ownerTag": text, "userdom": text}
	maps.Copy(out, props)
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i].(string)] = more[i+1].(check)
	}
	return out
}

func name(more ...any) map[string]check { return with(map[string]check{"name": naming}, more...) }

func relation(prop string, c check, more ...any) map[string]check {
	return with(map[string]check{prop: c}, more...)
}

// model is the part of the object model that is simulated.
var model = map[string]*class{
	"polUni":           {rn: "uni", props: with(nil)},
	"physDomP":         {rn: "phys-{name}", parents: "polUni", props: name()},
	"fvTenant":         {rn: "tn-{name}", parents: "polUni", props: name(), implicit: "fvRsTenantMonPol vnsSvcCont"},
	"fvRsTenantMonPol": {rn: "rsTenantMonPol", parents: "fvTenant", props: relation("tnMonEPGPolName", ref), fixed: true},
	"vnsSvcCont":       {rn: "svcCont", parents: "fvTenant", props: with(nil), fixed: true},
	"fvCtx": {
		rn: "ctx-{name}", parents: "fvTenant",
		props: name("pcEnfPref", matches(`enforced|unenforced`), "pcEnfDir", matches(`ingress|egress`), "bdEnforcedEnable", yesNo,
			"ipDataPlaneLearning", matches(`enabled|disabled`), "knwMcastAct", matches(`permit|deny`)),
		defaults: map[string]string{"pcEnfPref": "enforced", "pcEnfDir": "ingress"},
	},
	"fvBD": {
		rn: "BD-{name}", parents: "fvTenant", implicit: "fvRsCtx",
		props: name("arpFlood", yesNo, "unicastRoute", yesNo, "unkMacUcastAct", matches(`flood|proxy`), "unkMcastAct", matches(`flood|opt-flood`),
			"limitIpLearnToSubnets", yesNo, "ipLearning", yesNo, "multiDstPktAct", matches(`bd-flood|drop|encap-flood`), "mcastAllow", yesNo,
			"epClear", yesNo, "type", matches(`regular|fc`), "mac", matches(`(?:[0-9A-F]{2}:){5}[0-9A-F]{2}`), "hostBasedRouting", yesNo),
		defaults: map[string]string{"arpFlood": "no", "unicastRoute": "yes", "unkMacUcastAct": "proxy", "limitIpLearnToSubnets": "yes", "mac": "00:22:BD:F8:19:FF"},
	},
	"fvRsCtx": {rn: "rsctx", parents: "fvBD", props: relation("tnFvCtxName", ref), defaults: map[string]string{"tnFvCtxName": ""}, fixed: true, target: "ctx-"},
	"fvSubnet": {
		rn: "subnet-[{ip}]", parents: "fvBD fvAEPg",
		props:    with(map[string]check{"ip": gateway, "scope": flags(`public|private|shared`), "preferred": yesNo, "virtual": yesNo, "ctrl": flags(`unspecified|querier|nd|no-default-gateway`)}),
		defaults: map[string]string{"scope": "private", "preferred": "no", "virtual": "no"},
	},
	"fvAp": {rn: "ap-{name}", parents: "fvTenant", props: name("prio", prio), defaults: map[string]string{"prio": "unspecified"}},
	"fvAEPg": {
		rn: "epg-{name}", parents: "fvAp", implicit: "fvRsBd",
		props: name("pcEnfPref", matches(`enforced|unenforced`), "prefGrMemb", matches(`include|exclude`), "prio", prio, "matchT", matchT,
			"floodOnEncap", matches(`enabled|disabled`), "isAttrBasedEPg", yesNo, "fwdCtrl", flags(`none|proxy-arp`), "shutdown", yesNo, "hasMcastSource", yesNo, "exceptionTag", text),
		defaults: map[string]string{"pcEnfPref": "unenforced", "prefGrMemb": "exclude", "matchT": "AtleastOne", "prio": "unspecified"},
	},
	"fvRsBd": {rn: "rsbd", parents: "fvAEPg", props: relation("tnFvBDName", ref), defaults: map[string]string{"tnFvBDName": ""}, fixed: true, target: "BD-"},
	"fvRsDomAtt": {
		rn: "rsdomAtt-[{tDn}]", parents: "fvAEPg",
		props: relation("tDn", matches(`uni/(?:phys|l2dom|fc)-[a-zA-Z0-9_.:\-]{1,64}|uni/vmmp-[a-zA-Z]+/dom-[a-zA-Z0-9_.:\-]{1,64}`),
			"instrImedcy", immedcy, "resImedcy", matches(`immediate|lazy|pre-provision`), "encap", encap, "primaryEncap", encap),
		defaults: map[string]string{"instrImedcy": "lazy", "resImedcy": "immediate", "encap": "unknown"},
	},
	"fvRsPathAtt": {
		rn: "rspathAtt-[{tDn}]", parents: "fvAEPg",
		props: relation("tDn", matches(`topology/pod-\d{1,3}/(?:paths|protpaths)-\d{1,4}(?:-\d{1,4})?/(?:extpaths-\d+/)?pathep-\[[^\[\]]+\]`),
			"encap", encap, "mode", mode, "instrImedcy", immedcy, "primaryEncap", encap),
		defaults: map[string]string{"encap": "unknown", "mode": "regular", "instrImedcy": "lazy", "primaryEncap": "unknown"},
	},
	"fvRsNodeAtt": {
		rn: "rsnodeAtt-[{tDn}]", parents: "fvAEPg",
		props:    relation("tDn", matches(`topology/pod-\d{1,3}/node-\d{1,4}`), "encap", encap, "mode", mode, "instrImedcy", immedcy),
		defaults: map[string]string{"encap": "unknown", "mode": "regular", "instrImedcy": "lazy"},
	},
	"fvRsProv": {
		rn: "rsprov-{tnVzBrCPName}", parents: "fvAEPg l3extInstP", target: "brc-",
		props:    relation("tnVzBrCPName", naming, "prio", prio, "matchT", matchT, "tDn", text),
		defaults: map[string]string{"prio": "unspecified", "matchT": "AtleastOne"},
	},
	"fvRsCons": {
		rn: "rscons-{tnVzBrCPName}", parents: "fvAEPg l3extInstP", target: "brc-",
		props: relation("tnVzBrCPName", naming, "prio", prio, "tDn", text), defaults: map[string]string{"prio": "unspecified"},
	},
	"fvRsConsIf":       {rn: "rsconsIf-{tnVzCPIfName}", parents: "fvAEPg l3extInstP", props: relation("tnVzCPIfName", naming, "prio", prio)},
	"fvRsProtBy":       {rn: "rsprotBy-{tnVzTabooName}", parents: "fvAEPg", props: relation("tnVzTabooName", naming)},
	"fvRsIntraEpg":     {rn: "rsintraEpg-{tnVzBrCPName}", parents: "fvAEPg", props: relation("tnVzBrCPName", naming)},
	"fvRsSecInherited": {rn: "rssecInherited-[{tDn}]", parents: "fvAEPg", props: relation("tDn", matches(`uni/tn-.+`))},
	"fvStCEp":          {rn: "stcep-{mac}-type-{type}", parents: "fvAEPg", props: with(map[string]check{"mac": matches(`[0-9A-F:]{17}`), "type": matches(`silent-host|tep|vep`), "encap": encap})},
	"l3extOut":         {rn: "out-{name}", parents: "fvTenant", props: name("targetDscp", dscp)},
	"l3extInstP":       {rn: "instP-{name}", parents: "l3extOut", props: name("prio", prio, "matchT", matchT, "prefGrMemb", matches(`include|exclude`))},
	"vzBrCP": {
		rn: "brc-{name}", parents: "fvTenant",
		props:    name("scope", matches(`application-profile|tenant|context|global`), "prio", prio, "targetDscp", dscp),
		defaults: map[string]string{"scope": "context", "prio": "unspecified", "targetDscp": "unspecified"},
	},
	"vzSubj": {
		rn: "subj-{name}", parents: "vzBrCP",
		props:    name("revFltPorts", yesNo, "provMatchT", matchT, "consMatchT", matchT, "prio", prio, "targetDscp", dscp),
		defaults: map[string]string{"revFltPorts": "yes", "provMatchT": "AtleastOne", "consMatchT": "AtleastOne", "prio": "unspecified"},
	},
	"vzRsSubjFiltAtt": {
		rn: "rssubjFiltAtt-{tnVzFilterName}", parents: "vzSubj", target: "flt-",
		props:    relation("tnVzFilterName", naming, "action", matches(`permit|deny`), "directives", flags(`none|log|no_stats`), "priorityOverride", matches(`default|level[1-3]`)),
		defaults: map[string]string{"action": "permit", "directives": "", "priorityOverride": "default"},
	},
	"vzRsSubjGraphAtt": {rn: "rsSubjGraphAtt", parents: "vzSubj", props: relation("tnVnsAbsGraphName", ref)},
	"vzInTerm":         {rn: "intmnl", parents: "vzSubj", props: with(nil)},
	"vzOutTerm":        {rn: "outtmnl", parents: "vzSubj", props: with(nil)},
	"vzFilter":         {rn: "flt-{name}", parents: "fvTenant", props: name()},
	"vzEntry": {
		rn: "e-{name}", parents: "vzFilter",
		props: name("etherT", matches(`unspecified|ip|ipv4|ipv6|arp|fcoe|mac_security|mpls_ucast|trill`), "prot", protocol,
			"sFromPort", port, "sToPort", port, "dFromPort", port, "dToPort", port, "stateful", yesNo, "applyToFrag", yesNo,
			"arpOpc", matches(`unspecified|req|reply`), "tcpRules", flags(`unspecified|est|syn|ack|fin|rst`), "matchDscp", dscp,
			"icmpv4T", matches(`unspecified|echo|echo-rep|dst-unreach|src-quench|time-exceeded`), "icmpv6T", matches(`unspecified|echo-req|echo-rep|dst-unreach|time-exceeded|nbr-solicit|nbr-advert|redirect`)),
		defaults: map[string]string{
			"etherT": "unspecified", "prot": "unspecified", "sFromPort": "unspecified", "sToPort": "unspecified", "dFromPort": "unspecified",
			"dToPort": "unspecified", "stateful": "no", "applyToFrag": "no", "arpOpc": "unspecified", "tcpRules": "",
		},
	},
}

// pieces splits a DN into RNs; brackets hold another DN.
func pieces(dn string) (out []string) {
	depth, from := 0, 0
	for i, c := range dn {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == '/' && depth == 0:
			out, from = append(out, dn[from:i]), i+1
		}
	}
	return append(out, dn[from:])
}

var rnPatterns = func() map[string]*regexp.Regexp {
	out := map[string]*regexp.Regexp{}
	for name, c := range model {
		expr := regexp.QuoteMeta(c.rn)
		expr = regexp.MustCompile(`\\\{(\w+)\\\}`).ReplaceAllString(expr, `(?P<$1>.+)`)
		out[name] = regexp.MustCompile("^" + expr + "$")
	}
	return out
}()

// locate returns the class of a DN and the naming properties in its last RN.
func locate(dn string) (class string, naming map[string]string, err error) {
	at := ""
	for i, rn := range pieces(dn) {
		next := ""
		for name, c := range model {
			m := rnPatterns[name].FindStringSubmatch(rn)
			if m == nil || !within(c.parents, at) {
				continue
			}
			// The longest prefix is meant: rscons- and rsconsIf- both begin with rscons.
			if next != "" && len(c.rn) <= len(model[next].rn) {
				continue
			}
			next, naming = name, map[string]string{}
			for k, prop := range rnPatterns[name].SubexpNames() {
				if prop != "" {
					naming[prop] = m[k]
				}
			}
		}
		if next == "" {
			return "", nil, refuse(104, "Invalid DN %s, wrong rn prefix %s at position %d", dn, rn, i)
		}
		at = next
	}
	return at, naming, nil
}

func within(parents, class string) bool {
	if class == "" {
		return parents == ""
	}
	for p := range strings.FieldsSeq(parents) {
		if p == class {
			return true
		}
	}
	return false
}

// above returns the DN of the parent.
func above(dn string) string {
	p := pieces(dn)
	return strings.Join(p[:len(p)-1], "/")
}

// rnOf returns the RN that the naming properties in props say.
func rnOf(class string, props map[string]string) (string, error) {
	rn := model[class].rn
	for _, prop := range rnPatterns[class].SubexpNames() {
		if prop == "" {
			continue
		}
		if props[prop] == "" {
			return "", refuse(100, "naming property %s of %s is missing", prop, class)
		}
		rn = strings.Replace(rn, "{"+prop+"}", props[prop], 1)
	}
	return rn, nil
}

// refusal is what the APIC says when it does not do something.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.code, r.text) }

func refuse(code int, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}
