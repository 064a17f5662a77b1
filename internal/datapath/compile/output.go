package compile

import (
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// output is the desired state that Compile brings up to date. Each part of it is written
// by one node, or by two that write different keys of it (docs/design/compile.md).
type output struct {
	desired.Host
	before desired.Host // what the last Compile returned; set during Compile only
}

// putName writes one record; one without names is taken out.
func (out *output) putName(k desired.DNSKey, r desired.DNSRecord) {
	if r.Service == "" && r.Group == "" && r.Name == "" {
		out.DNS.Records = out.DNS.Records.Delete(k)
		return
	}
	pic := &r
	if old, ok := out.before.DNS.Records.Get(k); ok && old.Equal(&r) {
		pic = old
	}
	out.DNS.Records = out.DNS.Records.Set(k, pic)
}
