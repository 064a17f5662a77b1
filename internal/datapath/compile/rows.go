package compile

import (
	"github.com/contiv/netplugin/v2/internal/model"
)

// The rows of the cluster, each to the node that owns it.

// SetGlobal records the cluster's settings.
func (c *Compiler) SetGlobal(g model.Global) { c.putGlobal(&g) }

// DeleteGlobal forgets them; the defaults (bridge, proxy) stand in.
func (c *Compiler) DeleteGlobal() { c.putGlobal(nil) }

func (c *Compiler) putGlobal(g *model.Global) {
	fabricChanged, routesChanged := c.settings.put(g)
	if fabricChanged {
		c.groups.touchAll()
	}
	if routesChanged {
		c.routing.touchAll()
	}
}

// SetHost records a host. When its VTEP changes, every network with endpoints
// on it is looked at again.
func (c *Compiler) SetHost(h model.Host) { c.Hosts.put(h) }

// DeleteHost forgets a host; its endpoints keep their place without a tunnel.
func (c *Compiler) DeleteHost(name model.HostName) { c.Hosts.remove(name) }

// SetTenant records a tenant.
func (c *Compiler) SetTenant(t model.Tenant) { c.routing.put(t) }

// DeleteTenant forgets a tenant; its networks reach each other no longer.
func (c *Compiler) DeleteTenant(name model.TenantName) { c.routing.remove(name) }

// SetNetwork records a network.
func (c *Compiler) SetNetwork(v model.Network) { c.networks.put(v.Key, &v) }

// DeleteNetwork forgets a network; ports that remain on it leave the desired state.
func (c *Compiler) DeleteNetwork(k model.NetworkKey) { c.networks.put(k, nil) }

// SetGroup records an endpoint group.
func (c *Compiler) SetGroup(v model.Group) { c.groups.put(v.Key, &v) }

// DeleteGroup forgets a group; ports that remain in it deny everything.
func (c *Compiler) DeleteGroup(k model.GroupKey) { c.groups.put(k, nil) }

// SetNetProfile records a net profile; the rates of its groups' ports follow.
func (c *Compiler) SetNetProfile(p model.NetProfile) { c.profiles.put(p.Key, &p) }

// DeleteNetProfile forgets a net profile; ports of groups that still name it are not
// limited, which is a problem.
func (c *Compiler) DeleteNetProfile(k model.NetProfileKey) { c.profiles.put(k, nil) }

// SetEndpoint records an endpoint.
func (c *Compiler) SetEndpoint(v model.Endpoint) { c.endpoints.put(v) }

// DeleteEndpoint forgets an endpoint.
func (c *Compiler) DeleteEndpoint(k model.EndpointKey) { c.endpoints.remove(k) }

// SetIdentity records what an identity stands for.
func (c *Compiler) SetIdentity(r model.IdentityRecord) { c.Identities.put(r) }

// DeleteIdentity forgets an identity. An endpoint that still has it is taken
// for a peer of every rule that denies, and of none that allows.
func (c *Compiler) DeleteIdentity(name model.TenantName, id model.Identity) {
	c.Identities.remove(name, id)
}

// SetNamespace records a namespace.
func (c *Compiler) SetNamespace(n model.Namespace) { c.Identities.putNamespace(n) }

// DeleteNamespace forgets a namespace. What is still in it is taken for a peer of
// each rule that denies by labels, and of none that allows by them.
func (c *Compiler) DeleteNamespace(name model.NamespaceName) { c.Identities.removeNamespace(name) }

// SetPolicy records a policy.
func (c *Compiler) SetPolicy(v model.Policy) { c.policies.put(v) }

// DeletePolicy forgets a policy; groups that still name it deny everything.
func (c *Compiler) DeletePolicy(k model.PolicyKey) { c.policies.remove(k) }

// SetRule records a rule.
func (c *Compiler) SetRule(v model.PolicyRule) { c.policies.putRule(v) }

// DeleteRule forgets a rule.
func (c *Compiler) DeleteRule(k model.RuleKey) { c.policies.removeRule(k) }

// SetService records a service.
func (c *Compiler) SetService(v model.Service) { c.Services.put(v) }

// DeleteService forgets a service.
func (c *Compiler) DeleteService(k model.ServiceKey) { c.Services.remove(k) }

// SetServiceSlice records some backends of a service.
func (c *Compiler) SetServiceSlice(v model.ServiceSlice) { c.Services.putSlice(v) }

// DeleteServiceSlice forgets them.
func (c *Compiler) DeleteServiceSlice(k model.ServiceSliceKey) { c.Services.removeSlice(k) }

// SetClusterNode records what services ask of a node.
func (c *Compiler) SetClusterNode(v model.ClusterNode) { c.nodePorts.put(v) }

// DeleteClusterNode forgets it.
func (c *Compiler) DeleteClusterNode(k model.NodeName) { c.nodePorts.remove(k) }

// SetServiceRanges records where the addresses of the orchestrator's services come from.
func (c *Compiler) SetServiceRanges(r model.ServiceRanges) { c.Services.backends.setRanges(r) }
