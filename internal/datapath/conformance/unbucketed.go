package conformance

import (
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/datapath/shaping"
)

// Unbucketed is a kernel without a token bucket, and how often it was asked for one.
type Unbucketed struct {
	shaping.Kernel
	Asked int
}

// QdiscReplace implements shaping.Kernel.
func (k *Unbucketed) QdiscReplace(q netlink.Qdisc) error {
	if q.Type() == "tbf" {
		k.Asked++
		return unix.ENOENT
	}
	return k.Kernel.QdiscReplace(q)
}
