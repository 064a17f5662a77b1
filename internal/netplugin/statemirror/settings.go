package statemirror

import (
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Settings owns the cluster's settings and the tenants' records, and whether this host has
// taken back the last change of the forwarding mode. The State enters them.
type Settings struct {
	*shared
	comp    *compile.Compiler
	global  *model.Global // nil = not known
	mode    modeChange
	tenants map[model.TenantName]model.Tenant
}

// modeChange is the last change of the forwarding mode, and whether this host has taken
// it back.
type modeChange struct {
	wanted    model.FwdMode // by the store
	before    model.FwdMode // empty = it has not changed
	at        time.Time
	suspended bool
}

// follow takes settings of the store, and returns them as this host follows them.
func (m *modeChange) follow(g model.Global) model.Global {
	if m.wanted != g.FwdMode {
		*m = modeChange{wanted: g.FwdMode, before: m.wanted, at: time.Now()}
	}
	return m.effective(g)
}

// effective returns settings as this host follows them.
func (m *modeChange) effective(g model.Global) model.Global {
	if m.suspended {
		g.FwdMode = m.before
	}
	return g
}

func (s *Settings) setGlobal(g model.Global) {
	s.global = &g
	s.comp.SetGlobal(g)
}

// suspendMode has this host go by the forwarding mode before the last change, or by the
// present one again. It reports whether there is such a change.
func (s *Settings) suspendMode(suspend bool) bool {
	if s.mode.before == "" || s.global == nil {
		return false
	}
	s.mode.suspended = suspend
	g := *s.global
	g.FwdMode = s.mode.wanted
	s.setGlobal(s.mode.effective(g))
	return true
}

// NewestMode returns when the forwarding mode changed last, if that was after since and
// this host follows it; zero otherwise.
func (s *Settings) NewestMode(since time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mode; m.before != "" && !m.suspended && m.at.After(since) {
		return m.at
	}
	return time.Time{}
}

// problems says whether this host has taken the forwarding mode back.
func (s *Settings) problems() []compile.Problem {
	if !s.mode.suspended {
		return nil
	}
	return []compile.Problem{{Object: "forwarding mode", Text: "this host stays in mode " + string(s.mode.before) +
		": since it went to " + string(s.mode.wanted) + " no netmaster answered, and without it one does; change the mode back, or restart netplugin to apply it"}}
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
