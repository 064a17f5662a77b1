package compile

import (
	"github.com/contiv/netplugin/v2/internal/model"
)

// settings has the cluster's settings.
//
// Takes: the global row.
// Gives: the forwarding mode and the infrastructure type to other nodes; FwdMode, ArpMode.
type settings struct {
	global *model.Global // nil = not known
	dirty  bool

	out      *output
	problems *problems
}

// put records the settings, nil = none. It reports whether the fabric manages VLANs from
// now on, or no longer does, and whether tenants' networks are joined, or no longer are.
func (st *settings) put(g *model.Global) (fabricChanged, routesChanged bool) {
	fabric, routes := st.fabric(), st.routes()
	st.global, st.dirty = g, true
	return fabric != st.fabric(), routes != st.routes()
}

// routes reports whether routers join tenants' networks.
func (st *settings) routes() bool { return st.global != nil && st.global.FwdMode == model.FwdRouting }

// fabric reports whether a fabric manages the VLANs of groups.
func (st *settings) fabric() bool { return st.global != nil && st.global.Infra == model.InfraACI }

func (st *settings) compile() {
	if !st.dirty {
		return
	}
	st.dirty = false
	st.out.FwdMode, st.out.ArpMode = model.FwdBridge, model.ArpProxy
	if st.global != nil {
		st.out.FwdMode, st.out.ArpMode = st.global.FwdMode, st.global.ArpMode
		st.problems.set("global", "")
	} else {
		st.problems.set("global", "the cluster's settings are not known: bridge and proxy mode stand in")
	}
	noEffect(st.problems, "globals", "global", st.global, true)
}
