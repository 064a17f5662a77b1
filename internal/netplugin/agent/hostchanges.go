package agent

import (
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/fabric"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// path says by which interfaces and gateways this host reaches its netmasters.
func (c *mirror) path() string { return hoststack.Path(c.control.NetmasterAddresses()) }

// hostChanges are the changes of this host's own networking that can be taken back.
func (a *Agent) hostChanges() []hostChanges {
	return []hostChanges{&infraInterfaces{of: a.Attachments.Infra}, stackRoutes{a.mirror.way.Changes(), a.kick}, learnedRoutes{a.bgp.fabric}, forwardingMode{a.mirror.cluster}}
}

// infraInterfaces are the host's interfaces on infra networks.
type infraInterfaces struct {
	of     *attachment.InfraNetworks
	newest model.NetworkKey // as found last
}

func (i *infraInterfaces) Newest(since time.Time) (made time.Time, what string) {
	i.newest, made = i.of.Newest(since)
	return made, "interface on infra network " + i.newest.String()
}

func (i *infraInterfaces) Suspend(time.Time) error {
	return i.of.Suspend(i.newest, "this host's interface on it is down: since it was made no netmaster answered, and without it one does; delete the network, and choose another subnet")
}

func (i *infraInterfaces) Resume(time.Time) error { return i.of.Resume(i.newest) }

// stackRoutes are the host's routes to services and native networks.
type stackRoutes struct {
	*hoststack.RouteChanges
	kick func(reason string)
}

func (r stackRoutes) Newest(since time.Time) (time.Time, string) {
	return r.RouteChanges.Newest(since), "routes to services and native networks"
}

func (r stackRoutes) Suspend(made time.Time) error {
	r.RouteChanges.Suspend(made)
	r.kick("drift")
	return nil
}

func (r stackRoutes) Resume(made time.Time) error {
	r.RouteChanges.Resume(made)
	r.kick("drift")
	return nil
}

// learnedRoutes are the host's routes that it learned by BGP.
type learnedRoutes struct{ of *fabric.Router }

func (r learnedRoutes) Newest(since time.Time) (time.Time, string) {
	return r.of.NewestRoutes(since), "routes that were learned by BGP"
}
func (r learnedRoutes) Suspend(made time.Time) error { r.of.SuspendRoutes(made); return nil }
func (r learnedRoutes) Resume(made time.Time) error  { r.of.ResumeRoutes(made); return nil }

// forwardingMode is the mode of the cluster as this host follows it.
type forwardingMode struct{ of *statemirror.State }

func (m forwardingMode) Newest(since time.Time) (time.Time, string) {
	return m.of.Settings.NewestMode(since), "forwarding mode"
}
func (m forwardingMode) Suspend(time.Time) error { m.of.SuspendMode(true); return nil }
func (m forwardingMode) Resume(time.Time) error  { m.of.SuspendMode(false); return nil }
