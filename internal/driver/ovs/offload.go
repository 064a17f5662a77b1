package ovs

// NeedsTxChecksum tells whether containers' kernels must complete checksums
// themselves: the datapath in user space reads frames by packet sockets, and
// passes on what is still to be filled in by a network card that is not there.
func (d *Driver) NeedsTxChecksum() bool { return d.cfg.Datapath == "netdev" }

// HasWayOut tells that the driver makes desired.Private.Interface.
func (d *Driver) HasWayOut() bool { return true }
