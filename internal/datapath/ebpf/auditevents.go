package ebpf

import (
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// Rules with Log and audited sets are no affair of the programs': they send up
// what the connections are that begin at ports whose sets have any, and what
// became of them, and the policies are asked again here. So neither costs a
// packet's way or a map anything.

// auditEvents tells what the policies asked about a new connection say of it beside
// their verdicts.
func (m *monitor) auditEvents(f driver.FlowEvent, list []verdict) {
	defer m.asking.Measure()()
	for _, v := range list {
		if !m.asking.HasTime() {
			m.queue.AddLost(f.Count)
			return
		}
		said := v.Judge(v.Set)
		if !v.is(said) {
			m.queue.AddLost(f.Count)
			continue
		}
		for _, e := range v.AuditEvents(said) {
			m.queue.Send(f.AsAudit(e))
		}
	}
}
