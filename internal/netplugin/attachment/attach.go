package attachment

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// target is where an attachment goes, parsed and with defaults filled in.
type target struct {
	tenant      model.TenantName
	network     model.NetworkName // empty = netmaster knows it by the group
	group       model.GroupName
	v4, v6      netip.Addr
	pod         bool // Kubernetes says so
	tenantGiven bool
}

// attacher makes attachments. It owns no state: the journal has them.
type attacher struct {
	*deps
	veths    *Interfaces
	releaser *releaser
	facts    *facts
}

// Attach is attach.Service's.
func (a *attacher) Attach(ctx context.Context, r attach.Request) (attach.Result, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	res, err := a.attach(ctx, r)
	a.attachTime.WithLabelValues("attach", outcomeLabel(err)).Observe(time.Since(start).Seconds())
	if err != nil {
		a.log.Warn("attach failed", "container", r.Container, "ifname", r.IfName, "error", err)
		return res, fmt.Errorf("attach %s: %w", r.Key, err)
	}
	a.log.Info("attached", "container", r.Container, "ifname", r.IfName, "endpoint", res.Endpoint,
		"interface", res.HostIf, "took", time.Since(start))
	return res, nil
}

func (a *attacher) attach(ctx context.Context, r attach.Request) (attach.Result, error) {
	t, err := parseTarget(r)
	if err == nil && r.Netns != "" { // before an endpoint is asked for, so that what is wrong is named
		err = vethpair.CheckNetns(r.Netns)
	}
	if err == nil && r.Source == attach.SourceProcess && r.Name != "" && !compile.IsDNSName(r.Name) {
		err = model.InvalidField("name", r.Name, "must be a name that the name server serves: letters, digits, -, _ and dots, at most 63 characters between dots; give another --name")
	}
	if err != nil {
		return attach.Result{}, err
	}
	unlock, err := a.journal.turns.Lock(ctx, r.Key)
	if err != nil {
		return attach.Result{}, model.Errorf(model.ErrUnavailable, "another request for it is in progress: %w", err)
	}
	defer unlock()
	if a.cfg.spool().Has(r.Key) { // a deletion of the former attachment of that name
		if err := a.releaser.detachLocked(ctx, r.Key); err != nil {
			return attach.Result{}, err
		}
	}
	res, former, err := a.existing(ctx, r, t)
	if err != nil || res.Endpoint != "" {
		return res, err
	}
	a.agent.AwaitFirst(ctx)
	if err := a.agent.Able(); err != nil {
		return attach.Result{}, err
	}
	if t, err = a.askPlacement(ctx, &r.Pod, t, r.Pod.Name != "" && a.journal.hasPod(r.Key)); err != nil {
		return attach.Result{}, err
	}
	a.cluster.AcquireTenant(t.tenant)
	defer a.cluster.ReleaseTenant(t.tenant)
	if former != nil {
		if err := a.checkAdmitted(ctx, r, t); err != nil {
			return attach.Result{}, err
		}
		if err := a.releaseReplaced(ctx, *former); err != nil {
			return attach.Result{}, err
		}
	}
	res, err = a.attachNew(ctx, r, t)
	if err != nil && former != nil && r.Source == attach.SourceProcess {
		err = a.reattach(ctx, *former, err)
	}
	return res, err
}

// parseTarget checks the request's fields. Errors are of kind ErrInvalid.
func parseTarget(r attach.Request) (target, error) {
	var t target
	var err error
	if r.Container == "" {
		return t, model.InvalidField("container", r.Container, "must not be empty")
	}
	if !isInterfaceName(r.IfName) {
		return t, model.InvalidField("ifname", r.IfName, "must be a name that Linux gives an interface: 1 to 15 bytes, neither . nor .. and without /, :, % and spaces")
	}
	if r.OnHost != (r.Source == attach.SourceInfra) || r.OnHost != isInfra(r.Key) {
		return t, model.InvalidField("onHost", r.OnHost, "is for infra networks, to which netplugin attaches the host itself")
	}
	if (r.Parked || r.OnHost) != (r.Netns == "") {
		return t, model.InvalidField("netns", r.Netns, "must be the path of the container's network namespace, or empty for an interface that stays on the host")
	}
	t.tenant = model.DefaultTenant
	if r.Tenant != "" {
		t.tenantGiven = true
		if t.tenant, err = model.ParseTenantName(r.Tenant); err != nil {
			return t, err
		}
	}
	if r.Network != "" {
		if t.network, err = model.ParseNetworkName(r.Network); err != nil {
			return t, err
		}
	}
	if r.Group != "" {
		if t.group, err = model.ParseGroupName(r.Group); err != nil {
			return t, err
		}
	}
	if err := r.Rates.Validate(); err != nil {
		return t, err
	}
	for _, ip := range r.Addresses {
		slot := &t.v6
		if ip.Is4() {
			slot = &t.v4
		}
		if slot.IsValid() {
			return t, model.InvalidField("addresses", ip, "at most one IPv4 and one IPv6 address may be asked for")
		}
		*slot = ip
	}
	return t, nil
}

// isInterfaceName reports whether Linux gives an interface this name (dev_valid_name in its
// net/core/dev.c; % would have it choose a number).
func isInterfaceName(name string) bool {
	return name != "" && len(name) <= 15 && name != "." && name != ".." && !strings.ContainsFunc(name, func(c rune) bool {
		return c == '/' || c == ':' || c == '%' || unicode.IsSpace(c)
	})
}

// samePod reports whether a container's pod is the one that is asked for, by a runtime that
// may name no UID.
func samePod(was, asked attach.Pod) bool {
	asked.UID = cmp.Or(asked.UID, was.UID)
	return was == asked
}

// existing answers for an attachment that stands: ADD is idempotent. One whose interface
// is there but not as asked for is the former one, to be released before another is made;
// of any other nothing is left.
func (a *attacher) existing(ctx context.Context, r attach.Request, t target) (res attach.Result, former *Entry, err error) {
	e, ok := a.journal.get(r.Key)
	if !ok {
		return res, nil, nil
	}
	if e.State == StateDone && e.Result != nil {
		same := e.Pod && samePod(e.Request.Pod, r.Pod) || !e.Pod && (e.Endpoint.Network.Tenant == t.tenant || r.Pod.Name != "" && !t.tenantGiven) && (t.network == "" || e.Endpoint.Network.Name == t.network) &&
			e.Group == t.group
		same = same && sameNetns(e.Request.Netns, r.Netns) && e.Request.Parked == r.Parked
		same = same && (e.Pod || e.Request.Rates == r.Rates) // a pod's follow its annotations
		same = same && (r.Source != attach.SourceProcess || hasAddresses(*e.Result, r.Addresses))
		there, err := vethpair.Exists(e.HostIf)
		if err != nil {
			return res, nil, err
		}
		if same && there && (r.Parked || vethpair.Verify(expectation(e, r.Netns)) == nil) {
			if a.veths.checkPort(e) == nil {
				return *e.Result, nil, a.followProcess(ctx, e, r)
			}
			if err := a.agent.Able(); err != nil {
				return res, nil, err
			}
			// Somebody has deleted the endpoint under the container.
		}
		if there {
			return res, &e, nil
		}
	}
	return res, nil, a.releaseReplaced(ctx, e)
}

// sameNetns reports whether two paths lead to one network namespace, which processes have
// others to than runtimes.
func sameNetns(a, b string) bool {
	if a == b {
		return true
	}
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// askNetwork asks netmaster for the network of an attachment, which has to exist with its
// group: this host knows nothing of a tenant that it has no endpoint of.
func (a *attacher) askNetwork(ctx context.Context, t target) (model.NetworkName, error) {
	g := model.GroupKey{Tenant: t.tenant, Name: t.group}
	if g.Name == "" {
		t.network, _, _ = a.cluster.Lookup.Resolve(g, t.network)
	}
	return a.masters.Place(ctx, g, t.network)
}

// attachNew makes an attachment that the journal does not know. Whatever fails
// is undone.
func (a *attacher) attachNew(ctx context.Context, r attach.Request, t target) (res attach.Result, err error) {
	here, err := a.cluster.Lookup.HasTenant(ctx, t.tenant)
	if err != nil {
		return res, err
	}
	var network model.Network
	var known bool
	if here {
		t.network, network, known = a.cluster.Lookup.Resolve(model.GroupKey{Tenant: t.tenant, Name: t.group}, t.network)
	} else if t.network, err = a.askNetwork(ctx, t); err != nil {
		return res, err
	}
	key := model.EndpointKey{
		Network: model.NetworkKey{Tenant: t.tenant, Name: t.network},
		ID:      endpointID(a.cfg.Host, r),
	}
	e := Entry{
		State: StateIntent, Request: r, Endpoint: key, Group: t.group, Pod: t.pod,
		HostIf: compile.IfName(key), BootID: a.bootID, Facts: a.facts.pending.take(r.Key, time.Now()),
	}
	a.cluster.Acquire(key.Network) // which reads its endpoints, unless they were read before, while netmaster works
	defer func() {
		if err != nil {
			a.cluster.Release(key.Network)
		}
	}()
	mtu := 0
	if known {
		if err = a.checkNoOverlap(r, network); err != nil {
			return res, err
		}
		if mtu, err = a.cfg.Underlay.Of(network, r.MTU); err != nil {
			return res, err
		}
	}
	if !r.OnHost { // the host's stack has another egress
		if e.Private, err = a.way.Addresses.Take(r.Key, key); err != nil {
			return res, err
		}
	}
	// The veth is made while the intent is written down and netmaster works. A
	// veth without a journal entry is swept at the next start by its name.
	a.cluster.Endpoints.Hide(key)
	made := make(chan vethOutcome, 1)
	if known {
		go func() { made <- a.veths.makeVethAnew(ctx, e, mtu) }()
	}
	defer func() {
		if err != nil {
			a.undo(ctx, e, made, known)
		}
	}()
	clock := newPhases()
	if err = a.journal.put(e); err != nil {
		return res, err
	}
	clock.mark("journal")
	if err = a.cfg.Hook(StepJournalled); err != nil {
		return res, err
	}
	ep, at, err := a.masters.Create(ctx, a.createRequest(e, t), key)
	if err != nil {
		return res, err
	}
	clock.mark("create")
	if names := unselectable(e.Request.Labels); len(names) > 0 { // a runtime has nowhere to show it
		a.log.Warn("labels of an endpoint do not have the syntax of Kubernetes labels: they are stored, but no policy can select by them", "endpoint", ep.Key.String(), "labels", names)
	}
	if err = a.cfg.Hook(StepCreated); err != nil {
		return res, err
	}
	if !known { // netmaster knows a network that the mirror has not seen yet
		if network, err = a.cluster.Lookup.AwaitNetwork(ctx, key.Network); err != nil {
			return res, err
		}
		if err = a.checkNoOverlap(r, network); err != nil {
			return res, err
		}
		if mtu, err = a.cfg.Underlay.Of(network, r.MTU); err != nil {
			return res, err
		}
		made <- a.veths.makeVethAnew(ctx, e, mtu)
		known = true
	}
	veth := <-made
	made <- veth // undo waits for it too
	if veth.err != nil {
		return res, veth.err
	}
	clock.mark("veth")
	if !here { // netmaster passes the tenant on since it has the endpoint
		if err = a.cluster.Lookup.AwaitPolicies(ctx, t.tenant); err != nil {
			return res, err
		}
	}
	if err = a.cluster.Lookup.AwaitEndpoints(ctx, key.Network); err != nil {
		return res, err
	}
	clock.mark("endpoints")
	a.cluster.Endpoints.Reveal(key)
	a.agent.Kick("attach")

	out6 := ep.IPv6.IsValid() && a.way.Addresses.Subnet().Private6(e.Private).IsValid()
	led, led6 := a.veths.routedFamilies(ep, e.Private)
	res = attach.Result{
		Endpoint: key.String(), Group: string(t.group), HostIf: e.HostIf, HostMAC: veth.mac,
		IfName: r.IfName, Netns: r.Netns, MAC: ep.MAC, MTU: mtu,
		Addresses: addresses(network, ep, led6), Revision: int64(at.Endpoint),
	}
	if r.Parked {
		res.Parked = parkedName(e.HostIf)
	}
	if r.OnHost {
		led, led6, res.Addresses = false, false, withoutGateways(res.Addresses)
	}
	if led && !network.Gateway.IsValid() {
		res.Router = desired.RouterAddr
	}
	if led6 && !network.Gateway6.IsValid() {
		res.Router6 = desired.RouterMAC.LinkLocal()
	}
	if way := a.way.Addresses.Subnet(); a.cfg.Names && !r.OnHost && (ep.IPv4.IsValid() || out6) && way.Contains(e.Private) {
		res.NameServer, res.Search = way.Addr, strings.ToLower(string(t.tenant))
		if !ep.IPv4.IsValid() {
			res.NameServer = way.Addr6
		}
	}
	if r.OnHost {
		if err = checkHostRoutes(network); err != nil {
			return res, err
		}
	}
	if res.Routes, err = a.veths.configure(res); err != nil {
		return res, err
	}
	clock.mark("configure")
	if err = a.cfg.Hook(StepConfigured); err != nil {
		return res, err
	}
	policies, err := a.veths.waitProgrammed(ctx, key.Network, e.HostIf, at)
	if err != nil {
		return res, err
	}
	res.PolicyRevision = int64(policies)
	clock.mark("programmed")
	if err = a.cfg.Hook(StepProgrammed); err != nil {
		return res, err
	}
	e.State, e.Result = StateDone, &res
	if err = a.journal.put(e); err != nil {
		return res, err
	}
	a.facts.pending.forget(r.Key)
	clock.mark("done")
	a.log.Debug("attach phases", clock.attrs...)
	err = a.cfg.Hook(StepDone)
	return res, err
}

// phases measures how long the parts of an attachment take, for the log.
type phases struct {
	last  time.Time
	attrs []any
}

func newPhases() *phases { return &phases{last: time.Now()} }

func (p *phases) mark(name string) {
	now := time.Now()
	p.attrs = append(p.attrs, name, now.Sub(p.last))
	p.last = now
}

type vethOutcome struct {
	mac model.MAC
	err error
}

// makeVethAnew makes a pair once the data plane has no port of its name any more, as of an
// attachment that ended a moment ago: a switch that has one would not notice that it is
// another interface, and take in nothing of it.
func (a *Interfaces) makeVethAnew(ctx context.Context, e Entry, mtu int) vethOutcome {
	if o, _ := a.reached.Get(); hasPort(o, e.HostIf) {
		a.agent.Kick("an interface is made again")
		if err := a.awaitNoPort(ctx, e.HostIf); err != nil {
			return vethOutcome{err: model.Errorf(model.ErrUnavailable, "wait until the data plane has released the former interface %s: %w", e.HostIf, err)}
		}
	}
	return a.makeVeth(e, mtu)
}

func (a *Interfaces) makeVeth(e Entry, mtu int) vethOutcome {
	pair := vethpair.Pair{
		HostIf: e.HostIf, Alias: aliasOf(e.Endpoint),
		Netns: e.Request.Netns, IfName: e.Request.IfName, MTU: mtu,
		Promiscuous: a.can.UserSpace, OnHost: e.Request.OnHost,
	}
	if e.Request.Parked {
		pair.IfName = parkedName(e.HostIf)
	}
	mac, err := vethpair.Create(pair)
	if err == nil {
		err = a.cfg.Hook(StepVeth)
	}
	return vethOutcome{mac, err}
}

// createRequest asks netmaster for an endpoint. Labels that will be told later count
// as not known only where a policy selects by labels: else who waits for them would
// gain nothing.
func (a *deps) createRequest(e Entry, t target) api.CreateEndpointRequest {
	req := createRequest(a.cfg.Host, e, t)
	req.ConfigEP.LabelsLater = e.Request.LabelsLater && e.Facts.ID == "" && a.cluster.Lookup.UsesLabels(t.tenant)
	return req
}

func createRequest(host model.HostName, e Entry, t target) api.CreateEndpointRequest {
	req := api.CreateEndpointRequest{
		TenantName: string(t.tenant), NetworkName: string(t.network), ServiceName: string(t.group),
		EndpointID: string(e.Endpoint.ID), EPCommonName: cmp.Or(e.Facts.Name, e.Request.Name, e.Request.Container),
		ConfigEP: api.ConfigEP{
			Container: cmp.Or(e.Facts.ID, e.Request.Container), Host: string(host), ServiceName: string(t.group),
			Labels: labelsOf(e), Health: e.Facts.Health,
		},
	}
	if e.Request.OnHost {
		req.ConfigEP.Container = string(e.Endpoint.ID)
	}
	if e.Pod {
		req.ConfigEP.Pod = (*api.Pod)(&e.Request.Pod)
		req.ConfigEP.Labels = nil // those of the pod count
	}
	if r := e.Request.Rates; r != (model.Rates{}) {
		req.ConfigEP.Rates = &api.Rates{Send: r.Send.Bits, SendBurst: r.Send.Burst, Receive: r.Receive.Bits, ReceiveBurst: r.Receive.Burst}
	}
	if t.v4.IsValid() {
		req.ConfigEP.IPAddress = t.v4.String()
	}
	if t.v6.IsValid() {
		req.ConfigEP.IPv6Address = t.v6.String()
	}
	if e.Request.MAC != (model.MAC{}) {
		req.ConfigEP.MacAddress = e.Request.MAC.String()
	}
	return req
}

// undo removes what a failed attachment has made so far. It must end even when
// ctx has.
func (a *attacher) undo(ctx context.Context, e Entry, made <-chan vethOutcome, started bool) {
	if started {
		<-made // whatever came of it, it has ended
	}
	e.State = StateIntent // the network is released by attachNew, not with the entry
	if err := a.releaser.releaseEntry(context.WithoutCancel(ctx), e); err != nil {
		a.log.Warn("a failed attachment is not undone yet; trying again", "attachment", e.Key().String(), "error", err)
		a.releaser.pending.Ring()
	}
}
