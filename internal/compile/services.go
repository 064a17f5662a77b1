package compile

import (
	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// SetService records a load-balanced service; only its name and address
// matter.
func (c *Compiler) SetService(s model.Service) { c.dirtyServices[s.Key] = &s }

// DeleteService forgets a service.
func (c *Compiler) DeleteService(k model.ServiceKey) { c.dirtyServices[k] = nil }

// compileServices brings what the picture has of services up to date with those
// that have changed: their names. Host.Services stays empty until issue 13, and
// the problems say that services have no effect.
func (c *Compiler) compileServices(before desired.Host) {
	for k, s := range c.dirtyServices {
		noEffect(c, "serviceLBs", k.String(), s, true)
		var r desired.DNSRecord
		if s != nil && s.VIP.IsValid() {
			r = desired.DNSRecord{Network: s.NetworkKey(), Service: dnsName(k.Name)}
			if s.VIP.Is4() {
				r.IPv4 = s.VIP
			} else {
				r.IPv6 = s.VIP
			}
		}
		c.putName(before, desired.DNSKey{Service: k}, r)
	}
	clear(c.dirtyServices)
}
