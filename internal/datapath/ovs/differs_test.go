package ovs

import (
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
)

// differs are the cases that the switch cannot do as the reference does, and why.
func differs() map[string]string {
	out := map[string]string{
		conformance.AskedAsks:    "rules match what tracking recorded of the connection, so there is none to judge the request by",
		conformance.ReservedFlag: "no match of the switch sees the flag",
		conformance.SCTPAnswers:  "flows judge SCTP packet by packet, since tracking in user space does not know it",
		conformance.Chosen:       "select groups score by themselves (ADR 0019)",
		conformance.Tracked:      "tracking does otherwise; docs/design/ovs-pipeline.md lists in what",
	}
	if !ovstest.Kernel() {
		out[conformance.QuotedTCP] = "Open vSwitch 3.1 writes a TCP checksum into what the error quotes"
	}
	if ovstest.Kernel() {
		out[conformance.ResetKeeps] = "the kernel takes a request by the tuple for one of the connection for 10 s"
		out[conformance.CutShort] = "what of a packet is cut short ovs-vswitchd does not read, so it has the kernel drop all like it until none came for 10 s"
		out[conformance.ClientsErrors] = "flows do not see the tuple of the first error that goes in its connection's own direction"
	}
	return out
}
