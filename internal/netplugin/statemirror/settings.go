package statemirror

import (
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
)

// Settings owns the cluster's settings and the tenants' records. The State enters them. The
// last change of the forwarding mode may be rolled back.
type Settings struct {
	*shared
	comp    *compile.Compiler
	global  *model.Global // as this host goes by them; nil = not known
	mode    model.FwdMode // by the store; empty = not known
	tenants map[model.TenantName]model.Tenant
}

// follow takes settings of the store, and returns them as this host goes by them.
func (s *Settings) follow(g model.Global) model.Global {
	was := s.effective(model.Global{FwdMode: s.mode}).FwdMode
	s.mode = g.FwdMode
	now := s.effective(g)
	s.HostChanges.Keep(hostchanges.Mode, func(before string) bool { return before != string(g.FwdMode) })
	if was != "" && was != now.FwdMode {
		s.HostChanges.Note(hostchanges.Mode, string(was))
	}
	return now
}

// effective returns settings as this host goes by them: with the mode before the last
// change while that is rolled back.
func (s *Settings) effective(g model.Global) model.Global {
	for _, before := range s.HostChanges.Suspended(hostchanges.Mode) {
		g.FwdMode = model.FwdMode(before)
	}
	return g
}

func (s *Settings) setGlobal(g model.Global) {
	s.global = &g
	s.comp.SetGlobal(g)
}

// problems says whether this host has rolled the forwarding mode back.
func (s *Settings) problems() []compile.Problem {
	if s.global == nil || s.global.FwdMode == s.mode {
		return nil
	}
	return []compile.Problem{{Object: "forwarding mode", Text: "this host stays in mode " + string(s.global.FwdMode) +
		": since it went to " + string(s.mode) + " no netmaster answered, and without it one does; change the mode back; " + hostchanges.ApplyAgain}}
}

// Global returns the cluster's settings, and whether they are known.
func (s *Settings) Global() (model.Global, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.global == nil {
		return model.Global{}, false
	}
	return *s.global, true
}

// Routes reports whether networks of a tenant are joined, as far as is known.
func (s *Settings) Routes() bool {
	g, ok := s.Global()
	return ok && g.FwdMode == model.FwdRouting
}

// TenantPrefixes are the prefixes that cluster administrators allow to tenants.
func (s *Settings) TenantPrefixes() model.Prefixes {
	g, _ := s.Global()
	return g.TenantPrefixes
}

// infra returns the infra networks of all tenants.
func (s *Settings) infra() map[model.NetworkKey]bool {
	wanted := map[model.NetworkKey]bool{}
	for _, t := range s.tenants {
		for _, name := range t.Infra {
			wanted[model.NetworkKey{Tenant: t.Name, Name: name}] = true
		}
	}
	return wanted
}
