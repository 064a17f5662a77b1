package statemirror

import "github.com/contiv/netplugin/v2/internal/model"

// Infra returns the infra networks that there are, on which each host has an endpoint of
// its own; known is false while the picture stands still, and then nothing may be
// concluded of what is missing.
func (c *State) Infra() (wanted map[model.NetworkKey]bool, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen != nil || !c.entered {
		return nil, false
	}
	wanted = map[model.NetworkKey]bool{}
	for _, t := range c.tenants {
		for _, name := range t.Infra {
			wanted[model.NetworkKey{Tenant: t.Name, Name: name}] = true
		}
	}
	return wanted, true
}

// Refused tells whether an attachment cannot be put back, as Refuse has said.
func (c *State) Refused(k model.EndpointKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[k]
}
