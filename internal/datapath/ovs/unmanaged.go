package ovs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Flows and ports of others in the bridge are reported and left alone: they may be in use,
// and ours are found by their marks.

// unmanagedFlows are the flows of the bridge that are not ours.
type unmanagedFlows struct {
	n      int
	first  string // one of them, as ovs-ofctl prints it
	cookie uint64
}

// note takes a flow of the bridge, and tells whether it is ours to judge.
func (s *unmanagedFlows) note(f openflow.FlowStats) (ours bool) {
	switch f.Flow.Cookie & pipeline.MagicMask {
	case pipeline.CookieMagic:
		return true
	case pipeline.AffineMagic: // the switch has learned it
		return false
	}
	if s.n == 0 {
		s.first, s.cookie = f.Flow.String(), f.Flow.Cookie
		if f.Err != nil {
			s.first = fmt.Sprintf("table=%d, priority=%d, of a kind that is not known here", f.Flow.Table, f.Flow.Priority)
		}
	}
	s.n++
	return false
}

// unmanaged tells what is in the bridge that is not ours: flows as of the last look at
// all of them.
func (s *ports) unmanaged() (problems []driver.Problem) {
	bridge := s.cfg.Bridge
	if found := s.flows.unmanaged; found.n > 0 {
		problems = append(problems, driver.Problem{Object: "flows of bridge " + bridge, Unmanaged: true, Err: model.Errorf(model.ErrConflict,
			"%d of them are not Contiv's, and may let through what policies forbid; the first is %q; 'ovs-ofctl -O OpenFlow15 del-flows %s cookie=%#x/-1' takes those of its cookie away", found.n, found.first, bridge, found.cookie)})
	}
	var names []string
	s.conns.db.mu.Lock()
	for name, p := range s.conns.db.named {
		if name != bridge && p.ExternalIDs[markKey] == "" && s.conns.db.holder[p.UUID] == bridge {
			names = append(names, name)
		}
	}
	s.conns.db.mu.Unlock()
	if len(names) > 0 {
		slices.Sort(names)
		problems = append(problems, driver.Problem{Object: "ports of bridge " + bridge, Unmanaged: true, Err: model.Errorf(model.ErrConflict,
			"%s not Contiv's, and no packet goes to or comes from there; 'ovs-vsctl del-port %s %s' takes it out", isOrAre(names), bridge, names[0])})
	}
	return problems
}

// isOrAre says what is or are.
func isOrAre(names []string) string {
	const few = 3
	some := strings.Join(names[:min(few, len(names))], ", ")
	switch more := len(names) - few; {
	case more > 0:
		return fmt.Sprintf("%s and %d more are", some, more)
	case len(names) > 1:
		return some + " are"
	}
	return some + " is"
}
