package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// check reports whether a condition of the host holds.
type check struct {
	*condition.Condition
	// needed: containers cannot be attached while it does not hold, and CNI's
	// STATUS says so. Ready gives its check an observation that has only the
	// Outcome.
	needed bool
	// holds returns nil when the condition holds, else a sentence. It answers from
	// memory, or within ctx, which is short.
	holds func(ctx context.Context, cfg *Config, seen *observation) error
}

// checks are all, the most telling first.
var checks = []check{
	{condition.HostStore, true, storeIsFollowed},
	{condition.HostName, true, func(_ context.Context, cfg *Config, _ *observation) error { return cfg.Agent.Named() }},
	{condition.HostDataPlane, true, dataPlaneFollows},
	{condition.HostNetmaster, true, func(ctx context.Context, cfg *Config, _ *observation) error { return cfg.Netmasters.Ping(ctx) }},
	{condition.HostJournal, true, func(_ context.Context, cfg *Config, _ *observation) error { return cfg.Attachments.WhyUnwritable() }},
	{condition.HostDisk, false, diskHasRoom},
	{condition.HostTunnel, false, tunnelReachable},
	{condition.HostTunnels, false, func(_ context.Context, cfg *Config, _ *observation) error { return cfg.Agent.Tunnels() }},
	{condition.HostAttachments, false, attachmentsHaveEndpoints},
	{condition.HostPorts, false, portsProgrammed},
	{condition.HostSettings, false, without("global")},
	{condition.HostDevices, false, devicesPresent},
	{condition.HostMTU, false, networksCarryMTU},
	{condition.HostCertificates, false, certificatesLast},
	{condition.HostUnconfirmedChange, false, without(changeKind)},
	{condition.HostRolledBack, false, notRolledBack},
	{condition.HostDrift, false, notDrifted},
	{condition.HostContainers, false, containersUnchanged},
	// A problem without a condition of its own counts as cut off, unless its kind is known
	// to cut nothing off: an unforeseen kind must not look healthy.
	{condition.HostObjects, false, func(_ context.Context, _ *Config, s *observation) error {
		return s.problemsThat(func(object string) bool { return !hasOwnCondition(object) && !s.isNote(object) })
	}},
	{condition.HostNotes, false, func(_ context.Context, _ *Config, s *observation) error {
		return s.problemsThat(func(object string) bool { return !hasOwnCondition(object) && s.isNote(object) })
	}},
}

// Conditions returns how many conditions there are.
func Conditions() int { return len(checks) }

// observation is what conditions judge, taken once for all of them.
type observation struct {
	statemirror.SyncStatus
	problems map[string]string  // by object
	finished []attachment.Entry // attachments
	lost     map[model.EndpointKey]bool
}

// judge observes the host, and judges its conditions, for health, status and metrics.
type judge struct {
	cfg        *Config
	conditions *conditions
}

func (j judge) observe() *observation {
	o, _ := j.cfg.Reached.Get()
	s := &observation{SyncStatus: o, problems: j.problemTexts(o)}
	for _, e := range j.cfg.Attachments.Entries() {
		if e.State == attachment.StateDone {
			s.finished = append(s.finished, e)
		}
	}
	keys := make([]model.EndpointKey, len(s.finished))
	for i, e := range s.finished {
		keys[i] = e.Endpoint
	}
	s.lost = j.cfg.Cluster.Endpoints.Missing(keys)
	return s
}

// problemTexts returns all that is not as wanted: object -> sentence.
func (j judge) problemTexts(o statemirror.SyncStatus) map[string]string {
	texts := o.ProblemTexts()
	maps.Copy(texts, j.conditions.all())
	return texts
}

// healthTimeout bounds what one look at all conditions waits for others.
const healthTimeout = 2 * time.Second

// Health judges all conditions.
func (a *Observer) Health(ctx context.Context) api.Health {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	h := api.Health{Ready: true}
	seen := a.judge.observe()
	for _, c := range checks {
		c.Add(&h, c.holds(ctx, &a.cfg, seen))
	}
	return h
}

// Ready implements attach.Service: whether containers can be attached. It also asks
// a netmaster whether it is there.
func (a *Observer) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	o, _ := a.cfg.Reached.Get()
	for _, c := range checks {
		if c.needed {
			if err := c.holds(ctx, &a.cfg, &observation{SyncStatus: o}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Able is Ready without asking anybody.
func (a *Observer) Able() error {
	o, _ := a.cfg.Reached.Get()
	seen := &observation{SyncStatus: o}
	if err := storeIsFollowed(context.Background(), &a.cfg, seen); err != nil {
		return err
	}
	if err := a.cfg.Agent.Owns(); err != nil {
		return err
	}
	if err := dataPlaneFollows(context.Background(), &a.cfg, seen); err != nil {
		return err
	}
	if a.cfg.Netmasters.API() == nil {
		return masterclient.ErrNone
	}
	return a.cfg.Attachments.WhyUnwritable()
}

func storeIsFollowed(_ context.Context, cfg *Config, _ *observation) error {
	if err := cfg.Cluster.NotFollowing(); err != nil {
		return model.Errorf(model.ErrUnavailable, "the cluster's store cannot be watched: %w", err)
	}
	return nil
}

func dataPlaneFollows(_ context.Context, cfg *Config, s *observation) error {
	if w := cfg.Can.Watched; w != nil {
		if err := w.Hangs(); err != nil {
			return fmt.Errorf("%w: %w", attach.ErrDegraded, err)
		}
	}
	switch {
	case s.Err != nil:
		return fmt.Errorf("%w: %w", attach.ErrDegraded, s.Err)
	case s.At.IsZero():
		return model.Errorf(model.ErrUnavailable, "the data plane has not been programmed for the first time yet")
	}
	return nil
}

// fullSpace is how many free bytes in the state directory's file system count as
// none: the journal needs a block, in a file, for each attachment.
const fullSpace = 1 << 20

func diskHasRoom(_ context.Context, cfg *Config, _ *observation) error {
	free, writable, err := cfg.Attachments.FreeSpace()
	switch {
	case err != nil:
		return err
	case !writable:
		return fmt.Errorf("the file system of the state directory %s is read-only: containers cannot be attached or detached properly", cfg.StateDir)
	case free < fullSpace:
		return fmt.Errorf("the file system of the state directory %s is full (less than 1 MiB or no inode is free): containers cannot be attached or detached properly", cfg.StateDir)
	}
	return nil
}

// attachmentsHaveEndpoints: the cluster must know every attachment here. Otherwise it sends
// no packets to it, and may give its address to another.
func attachmentsHaveEndpoints(_ context.Context, _ *Config, s *observation) error {
	var lost []string
	for _, e := range s.finished {
		if s.lost[e.Endpoint] {
			lost = append(lost, e.Endpoint.String())
		}
	}
	if len(lost) == 0 {
		return nil
	}
	if why := s.problems[AboutAttachments]; why != "" {
		return errors.New(why)
	}
	return fmt.Errorf("%s without an endpoint in the cluster's store, unreachable for others: %s", condition.Count(len(lost), "attachment"), firstOf(lost))
}

// portsProgrammed: the port of every finished attachment must be in the data plane,
// unless its container has gone or has deleted it.
func portsProgrammed(_ context.Context, _ *Config, s *observation) error {
	bad, _ := s.ports()
	if len(bad) == 0 {
		return nil
	}
	return fmt.Errorf("%s of this host not programmed, so that containers are cut off: %s", condition.Count(len(bad), "port"), firstOf(bad))
}

// containersUnchanged: a container that has changed or deleted its interface, or has ended
// without being detached, is in a state of its own. This host is not.
func containersUnchanged(_ context.Context, cfg *Config, s *observation) error {
	_, gone := s.ports()
	var all []string
	for _, e := range s.finished {
		why := cfg.Attachments.ContainerChange(e.Key())
		if gone[e.Key()] {
			why = "the interface is gone, and the address is kept"
		}
		if why != "" {
			all = append(all, fmt.Sprintf("%s (%s): %s", e.Key(), e.HostIf, why))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%s of this host changed or lost the interface that netplugin made: %s", condition.Count(len(all), "container"), firstOf(all))
}

// ports returns what keeps ports of finished attachments from being programmed, and the
// attachments whose interface is gone.
func (s *observation) ports() (bad []string, gone map[attach.Key]bool) {
	gone = map[attach.Key]bool{}
	for _, e := range s.finished {
		st, there := s.Report.Ports.Get(e.HostIf)
		switch {
		case there && errors.Is(st.Err, model.ErrNotFound):
			switch name, err := vethpair.CurrentName(e.HostIf, vethpair.AliasPrefix+e.Endpoint.String()); {
			case err == nil && name == "":
				gone[e.Key()] = true
			case err == nil && name != e.HostIf:
				bad = append(bad, fmt.Sprintf("%s (%s): it was renamed to %s: rename it back ('ip link set %[3]s name %[1]s')", e.HostIf, e.Key(), name))
			default:
				bad = append(bad, fmt.Sprintf("%s (%s): %s", e.HostIf, e.Key(), st.Err))
			}
		case there && st.Err != nil:
			bad = append(bad, fmt.Sprintf("%s (%s): %s", e.HostIf, e.Key(), st.Err))
		case !there && !s.lost[e.Endpoint] && !s.At.IsZero():
			bad = append(bad, fmt.Sprintf("%s (%s) is not in the desired state", e.HostIf, e.Key()))
		}
	}
	return bad, gone
}

// tunnelReachable: other hosts must be reachable as far as this one can see.
func tunnelReachable(ctx context.Context, cfg *Config, s *observation) error {
	if err := without("tunnel", "host")(ctx, cfg, s); err != nil {
		return err
	}
	return cfg.Underlay.TunnelProblem()
}

// devicesPresent: the devices that the data plane needs are there, and the uplink
// carries VLAN networks.
func devicesPresent(ctx context.Context, cfg *Config, s *observation) error {
	if err := without("interface", "uplink")(ctx, cfg, s); err != nil || !s.VLAN {
		return err
	}
	return cfg.Underlay.UplinkProblem()
}

// without makes a condition that holds while there is no problem of some kinds.
func without(kinds ...string) func(context.Context, *Config, *observation) error {
	return func(_ context.Context, _ *Config, s *observation) error {
		return s.problemsThat(func(object string) bool { return slices.Contains(kinds, problemKind(object)) })
	}
}

// driftReportTime is how long a change from outside is reported.
const driftReportTime = time.Hour

// notDrifted fails when the driver has lately restored what another program had changed.
func notDrifted(_ context.Context, cfg *Config, _ *observation) error {
	if cfg.Can.Drifting == nil {
		return nil
	}
	names := cfg.Can.Drifting.RecentDrift(time.Now().Add(-driftReportTime))
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("another program has changed this host's data plane; restored in the last hour, the latest first: %s", strings.Join(names, ", "))
}

// hasOwnCondition reports whether another condition tells of an object's problem.
func hasOwnCondition(object string) bool {
	return slices.Contains([]string{"tunnel", "host", "global", "interface", "uplink", "port", changeKind}, problemKind(object))
}

// noteKinds are the kinds of problems that cut nothing off.
var noteKinds = []string{
	"net profile", "bandwidth", "policies that wait", "node ports of Kubernetes at other nodes", "contivk8s of 1.x",
	"Docker networks", "flow log", "spool", "journal", "BGP", statemirror.ObjectInspection,
}

// isNote reports whether an object's problem cuts nothing off: it is of such a kind,
// belongs to another object, or says by itself that something has no effect.
func (s *observation) isNote(object string) bool {
	if strings.HasPrefix(s.problems[object], model.NoEffectPrefix) {
		return true
	}
	if slices.ContainsFunc(s.Report.Problems, func(p driver.Problem) bool { return p.Object == object && p.Unmanaged }) {
		return true
	}
	return slices.ContainsFunc(noteKinds, func(kind string) bool {
		rest, ok := strings.CutPrefix(object, kind)
		return ok && (rest == "" || rest[0] == ' ')
	})
}

// problemsThat joins the problems of some objects. It leaves out the host's name,
// the store and attachments, which have conditions of their own.
func (s *observation) problemsThat(are func(object string) bool) error {
	var texts []string
	for _, object := range sortedKeys(s.problems) {
		switch object {
		case AboutName, AboutStore, AboutAttachments:
			continue
		}
		if are(object) {
			texts = append(texts, object+": "+s.problems[object])
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(firstOf(texts))
}

// firstOf joins the first few of many.
func firstOf(list []string) string {
	const few = 3
	if len(list) <= few {
		return strings.Join(list, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(list[:few], "; "), len(list)-few)
}

// problemKinds are the kinds of objects that problems have. A kind stands before
// any other with which its name begins.
var problemKinds = []string{
	"global", "host", "tenant", "network", "endpoint", "group", "rule", "policy set", "policy", "remote", "port",
	"tunnel", "uplink", "interface", "egress", "name server", "published ports", "Docker networks", "firewall", "BGP", "journal", "damaged journal", "flow log", changeKind,
}

// noEffectKind labels, in metrics, problems that say that something has no effect. They may
// last as long as the cluster, so no alert is about them.
const noEffectKind = "no effect"

// problemKind is the kind of a problem's object, which labels metrics: one of
// problemKinds, else "other".
func problemKind(object string) string {
	for _, k := range problemKinds {
		if rest, ok := strings.CutPrefix(object, k); ok && (rest == "" || rest[0] == ' ') {
			return k
		}
	}
	return "other"
}

// getHealth answers /healthz and /readyz.
func (a *Observer) getHealth(w http.ResponseWriter, r *http.Request) {
	h := a.Health(r.Context())
	if r.URL.Path == "/healthz" {
		h.ServeHealthy(w, r)
		return
	}
	h.ServeHTTP(w, r)
}
