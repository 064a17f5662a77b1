package agent

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// nothingLeft checks that neither journal, store, data plane nor kernel hold an
// attachment.
func (b *bed) nothingLeft() {
	b.t.Helper()
	b.eventually("nothing is left", func() error {
		if e := b.agent.Attachments.Entries(); len(e) > 0 {
			return fmt.Errorf("journal: %+v", e)
		}
		if eps := b.endpoints(); len(eps) > 0 {
			return fmt.Errorf("store: %+v", eps)
		}
		if o, _ := b.agent.reached.Get(); o.Report.Ports.Len() > 0 {
			return fmt.Errorf("ports: %v", o.Report.Ports)
		}
		return nil
	})
	b.noVeths()
}

func (b *bed) noVeths() {
	links, err := netlink.LinkList()
	if err != nil {
		b.t.Error(err)
	}
	for _, l := range links {
		if l.Type() == "veth" {
			b.t.Errorf("veth %s (%s) is left over", l.Attrs().Name, l.Attrs().Alias)
			if err := netlink.LinkDel(l); err != nil {
				b.t.Error(err)
			}
		}
	}
}
