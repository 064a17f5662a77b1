package ebpf

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestNetworksMayChangeNumbers: a network gets another number, as those of another store have. At
// every write what comes by its tag finds the endpoints under the number that the tag
// leads to, and so does what is routed to its subnet, or comes from its ports.
func TestNetworksMayChangeNumbers(t *testing.T) {
	c := newCrowded(t, nil)
	n, _ := c.pic.Networks.Get(1)
	former := *n
	former.Joined = 7
	remote := desired.Remote{Network: 1, MAC: model.MAC{2, 5, 0, 0, 0, 77}, IPv4: containerIP4[1].Next().Next(), Identity: 300, VTEP: vtep2}
	for _, id := range []model.NetworkID{1, 9, 4} {
		now, far := former, remote
		now.ID, far.Network = id, id
		pic := c.pic
		pic.Networks, pic.Remotes = desired.Map[model.NetworkID, *desired.Network]{}.Set(id, &now), desired.Map[desired.RemoteKey, *desired.Remote]{}.Set(desired.RemoteKey{Network: id, MAC: far.MAC}, &far)
		for name, o := range c.pic.Ports.All() {
			moved := *o
			moved.Network = id
			pic.Ports = pic.Ports.Set(name, &moved)
		}
		writes, lost := 0, 0
		c.drv.setFault(func() error {
			writes++
			seg := c.drv.dp.networks.Tags.have[tagKey{toEncap(former.Encap), former.Tag}]
			routed := c.drv.dp.networks.Subnets.have[toSubnetKey(former.Domain(), former.Subnet)]
			from := []uint32{seg.Net, routed}
			for _, p := range c.drv.dp.ports.Ports.have {
				from = append(from, p.Net)
			}
			for _, under := range from {
				for _, mac := range []model.MAC{c.a.MAC, c.b.MAC, far.MAC} {
					if _, ok := c.drv.dp.endpoints.Stations.have[stationKey{Net: under, MAC: mac}]; !ok && under != 0 && id != 1 {
						lost++
					}
				}
			}
			return nil
		})
		if rep, err := (inHost{c.drv, c.rig}).Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
		if lost > 0 || writes == 0 {
			t.Errorf("to number %d: %d times a tag, a subnet or a port leads to nobody, in %d writes", id, lost, writes)
		}
		if seg := c.drv.dp.networks.Tags.have[tagKey{toEncap(former.Encap), former.Tag}]; seg.Net != uint32(id) {
			t.Errorf("the tag leads to network %d, want %d", seg.Net, id)
		}
	}
}
