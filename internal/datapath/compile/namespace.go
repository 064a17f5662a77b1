package compile

import (
	"maps"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Identities name their namespace; its labels are joined to them here, so that a
// label of a namespace costs what it has of identities, and no endpoint.

// identityOf names an identity across tenants.
type identityOf struct {
	tenant model.TenantName
	id     model.Identity
}

// SetNamespace records a namespace.
func (c *Compiler) SetNamespace(n model.Namespace) {
	if old := c.namespaces[n.Name]; old != nil && maps.Equal(old.Labels, n.Labels) {
		return
	}
	c.namespaces[n.Name] = &n
	c.rejoin(n.Name)
}

// DeleteNamespace forgets a namespace. What is still in it is taken for a peer of
// each rule that denies by labels, and of none that allows by them.
func (c *Compiler) DeleteNamespace(name model.NamespaceName) {
	delete(c.namespaces, name)
	c.rejoin(name)
}

// rejoin enters the identities of a namespace anew.
func (c *Compiler) rejoin(name model.NamespaceName) {
	for of := range c.inNamespace[name] {
		t := c.tenant(of.tenant)
		old := t.records[of.id]
		now := old.In(c.namespaces[name])
		c.enterIdentity(t, of.id, old, &now)
	}
}
