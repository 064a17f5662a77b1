package ovs

import "context"

// smallestFragment is how many bytes an IP fragment must have, unless it is the last one
// of its datagram, for tracking in user space to take it: the least that the switch
// can be told (ovs-vswitchd's dpctl/ipf-set-min-frag). Untold it is 1,200, and 1,280 by
// IPv6, more than what the fragments of a narrow link have.
const smallestFragment = "400"

// acceptSmallFragments has the datapath in user space take fragments of smallestFragment. It
// holds for all of the datapath, other bridges' connections included, until the switch
// ends.
func (d *daemon) acceptSmallFragments(ctx context.Context) {
	if d.cfg.Datapath != "netdev" {
		return
	}
	for _, family := range []string{"v4", "v6"} {
		if _, err := control(ctx, d.cfg.RunDir, "dpctl/ipf-set-min-frag", d.datapath(), family, smallestFragment); err != nil {
			d.cfg.Log.Warn("the switch drops IP fragments of less than 1,200 bytes, by IPv6 1,280", "family", family, "error", err)
		}
	}
}
