package apiserver

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
)

// diagnosis answers how the cluster, its hosts and netmasters are.
type diagnosis struct {
	*serverContext
	router    *router
	hosts     *hostHandlers
	streams   *streams
	members   *memberHandlers
	hostKeys  HostKeys
	hostWatch *liveness.Watch                                                // nil = it is not known when hosts' statuses came
	peer      func(ctx context.Context, address string) (api.Machine, error) // nil = no other netmaster is asked
	support   *supportbundle.Support                                         // nil = short reports
}

// repairRequest is the body of POST /api/v1/doctor/repair, which says all by its path.
type repairRequest struct{}

func (s *server) handleDoctor() {
	s.router.handle("GET", "/api/v1/doctor/netmaster", access.View|access.Peer, nil, func(http.ResponseWriter, *request) (any, error) { return s.diagnosis.machine(), nil })
	s.router.handleStream("POST", "/plugin/report/{id}", access.OwnHost, ofHostQuery, s.streams.deliverReport).verb = verbReport
	// All that a netmaster or a host knows: recorded too.
	s.router.handleStream("GET", "/api/v1/bundle", access.AdminOnly, nil, s.diagnosis.ownBundle).verb = verbChange
	s.router.handleStream("GET", "/api/v1/hosts/{name}/bundle", access.AdminOnly, namedResource("bundle", "name"), s.streams.hostBundle).verb = verbChange
	s.router.handle("GET", "/api/v1/doctor", access.View, nil, s.diagnosis.doctor)
	s.router.handle("GET", "/api/v1/analysis/verification", access.View, nil, s.diagnosis.verification)
	s.router.handle("POST", "/api/v1/doctor/repair", access.AdminOnly, nil, s.diagnosis.repair)
}

// doctor answers GET /api/v1/doctor.
func (s *diagnosis) doctor(_ http.ResponseWriter, r *request) (any, error) {
	ctx, cancel := withLongTimeout(r)
	defer cancel()
	owners, err := s.control.Repair.Owners(ctx)
	if err != nil {
		return nil, err
	}
	return s.diagnose(ctx, r.actor, owners, nil)
}

// repair answers POST /api/v1/doctor/repair.
func (s *diagnosis) repair(w http.ResponseWriter, r *request) (any, error) {
	if _, err := decode(w, r, &repairRequest{}); err != nil {
		return nil, err
	}
	ctx, cancel := withLongTimeout(r)
	defer cancel()
	done, rev, err := s.control.Repair.RepairOwners(ctx, r.actor)
	r.committed(rev)
	if err != nil {
		return nil, err
	}
	owners, err := s.control.Repair.Owners(ctx)
	if err != nil {
		return nil, err
	}
	return s.diagnose(ctx, r.actor, owners, done)
}

// doctorTime bounds what is done for one request: it reads the whole store, and waits for
// hosts that are slow.
const doctorTime = 50 * time.Second

// withLongTimeout is a request's context with more time than others have. It ends with its time
// alone: a repair that has begun is not left half done because its client is gone.
func withLongTimeout(r *request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), doctorTime)
}

// diagnose looks at all but the store's contents, which somebody has looked at.
func (s *diagnosis) diagnose(ctx context.Context, a control.Actor, owners []control.OwnerFinding, repaired []control.Repaired) (api.Diagnosis, error) {
	facts, err := s.gather(ctx, a)
	if err != nil {
		return api.Diagnosis{}, err
	}
	facts.most = fabricFindings
	s.askMasters(ctx, &facts)
	alive := 0
	for _, h := range facts.hosts {
		if h.State == api.HostAlive {
			alive++
		}
	}
	var unasked error
	facts.inspections, unasked = s.streams.askHosts(ctx, a, alive)
	facts.asksHosts = s.address != "" && unasked == nil
	if s.hostKeys != nil { // after the answers: a host may have got another one meanwhile
		if facts.keys, err = s.hostKeys(ctx); err != nil {
			return api.Diagnosis{}, err
		}
	}
	facts.inspections.mu.Lock() // a late host may still write
	defer facts.inspections.mu.Unlock()
	out := api.Diagnosis{Version: s.version.Version, Hosts: len(facts.hosts), Answered: len(facts.inspections.of), Findings: []api.Finding{}}
	out.Findings = append(out.Findings, ownerFindings(owners, repaired)...)
	out.Findings = append(out.Findings, facts.judge()...)
	out.Findings = append(out.Findings, s.judgeHealth(facts)...)
	out.Findings = append(out.Findings, s.judgeView(facts.view, facts.known)...)
	if unasked != nil { // asking is a write, which a full store refuses
		f := condition.HostNoHeartbeat.Finding("cluster", "hosts were not asked, and are judged by their last reports: "+unasked.Error())
		f.Remedy = "see to what the message names, then ask again"
		out.Findings = append(out.Findings, f)
	}
	sortFindings(out.Findings)
	return out, nil
}

// mastersTimeout bounds what other netmasters are waited for.
const mastersTimeout = 3 * time.Second

// machine is what this netmaster tells of itself.
func (s *diagnosis) machine() api.Machine {
	if s.support == nil {
		return api.Machine{Version: s.version.Version}
	}
	return s.support.Machine()
}

// askMasters asks the other netmasters what they tell of themselves.
func (s *diagnosis) askMasters(ctx context.Context, f *facts) {
	ctx, cancel := context.WithTimeout(ctx, mastersTimeout)
	defer cancel()
	f.unreachedHosts, f.masterClockOffsets = map[string]string{}, map[string]time.Duration{}
	if s.peer == nil {
		return
	}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, m := range f.masters {
		if m.Address == s.address {
			continue
		}
		asked.Go(func() { // there are a few
			x, err := s.peer(ctx, m.Address)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				f.unreachedHosts[m.Address] = err.Error()
			} else {
				f.machines[m.Address] = x
				if !x.Time.IsZero() {
					f.masterClockOffsets[m.Address] = time.Until(x.Time)
				}
			}
		})
	}
	asked.Wait()
}

// ownBundle answers GET /api/v1/bundle: what this netmaster packs.
func (s *diagnosis) ownBundle(w http.ResponseWriter, r *request) {
	sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		s.router.requests.WithLabelValues("/api/v1/bundle", r.Method, strconv.Itoa(sw.status)).Inc()
	}()
	support := s.support
	if support == nil {
		support = &supportbundle.Support{Version: s.version.Version}
	}
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(bundleRead)) // not every connection has deadlines
	var parts []supportbundle.Part
	for name, path := range map[string]string{
		"status.json": "/api/v1/status", "hosts.json": "/api/v1/hosts", "store.json": "/api/v1/store", "doctor.json": "/api/v1/doctor", "ready.txt": "/readyz",
		"metrics.txt": "/metrics", "info.json": "/info", "version.json": "/version", "settings.json": "/api/v1/globals",
	} {
		parts = append(parts, supportbundle.Served(name, s.router.serveFor(r.client, path), path))
	}
	slices.SortFunc(parts, func(a, b supportbundle.Part) int { return cmp.Compare(a.Name, b.Name) })
	sw.Header().Set("Content-Type", "application/x-tar")
	if err := support.Pack(r.Context(), "netmaster "+cmp.Or(s.address, "here"), parts, sw); err != nil {
		s.log.Warn("a bundle was interrupted", "client", r.RemoteAddr, "error", err)
		_ = rc.SetWriteDeadline(time.Unix(1, 0)) // cuts the connection: what ends in order counts as whole
	}
}

// sortFindings puts the worst first.
func sortFindings(list []api.Finding) {
	rank := map[string]int{api.SeverityError: 0, api.SeverityWarning: 1, api.SeverityNotice: 2}
	slices.SortStableFunc(list, func(a, b api.Finding) int {
		return cmp.Or(cmp.Compare(rank[a.Severity], rank[b.Severity]), cmp.Compare(a.Check, b.Check), cmp.Compare(a.Where, b.Where), cmp.Compare(a.Text, b.Text))
	})
}

// ownerFindings tells what does not fit in the store, and what was done about it.
func ownerFindings(left []control.OwnerFinding, repaired []control.Repaired) (out []api.Finding) {
	failed := map[string]error{}
	for _, r := range repaired {
		switch {
		case r.Done:
			f := ownerFinding(r.OwnerFinding)
			f.Repair = api.RepairDone
			out = append(out, f)
		case r.Err != nil:
			failed[r.Text] = r.Err
		}
	}
	for _, o := range left {
		f := ownerFinding(o)
		if err := failed[o.Text]; err != nil {
			f.Repair = api.RepairFailed + ": " + err.Error()
		}
		out = append(out, f)
	}
	return out
}

func ownerFinding(o control.OwnerFinding) api.Finding {
	c := condition.NotAllocated
	switch o.Kind {
	case control.NoOwner:
		c = condition.AllocatedToNone
	case control.Leftover:
		c = condition.ReferenceLeft
	case control.NotAllocated:
		if !o.Repair {
			c = condition.AllocatedTwice
		}
	case control.MissingObject:
		c = condition.ObjectMissing
	case control.Unreadable:
		c = condition.RecordUnreadable
	case control.NewerRecord:
		c = condition.RecordNewer
	case control.UnknownRecord:
		c = condition.RecordUnknown
	}
	f := c.Finding(o.Object, o.Text)
	if o.Repair {
		f.Repair = api.RepairPossible
	}
	return f
}
