package apiserver

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/control"
)

// repairRequest is the body of POST /api/v1/doctor/repair, which says all by its path.
type repairRequest struct{}

func (s *server) handleDoctor() {
	s.handle("GET", "/api/v1/doctor", s.doctor)
	s.handle("POST", "/api/v1/doctor/repair", s.repair)
}

// doctor answers GET /api/v1/doctor.
func (s *server) doctor(_ http.ResponseWriter, r *http.Request) (any, error) {
	owners, err := s.control.Owners(r.Context())
	if err != nil {
		return nil, err
	}
	return s.diagnose(r.Context(), owners, nil)
}

// repair answers POST /api/v1/doctor/repair.
func (s *server) repair(w http.ResponseWriter, r *http.Request) (any, error) {
	if _, err := decode(w, r, &repairRequest{}); err != nil {
		return nil, err
	}
	done, err := s.control.RepairOwners(r.Context())
	if err != nil {
		return nil, err
	}
	owners, err := s.control.Owners(r.Context())
	if err != nil {
		return nil, err
	}
	return s.diagnose(r.Context(), owners, done)
}

// diagnose looks at all but the store's contents, which somebody has looked at.
func (s *server) diagnose(ctx context.Context, owners []control.OwnerFinding, repaired []control.Repaired) (api.Diagnosis, error) {
	none := api.Diagnosis{}
	v, err := s.control.View(ctx)
	if err != nil {
		return none, err
	}
	hosts, err := s.control.Hosts(ctx)
	if err != nil {
		return none, err
	}
	facts := facts{now: time.Now(), stores: s.cluster.Stores(ctx)}
	for _, h := range hosts {
		facts.hosts = append(facts.hosts, hostToAPI(h, facts.now))
	}
	if facts.masters, err = s.cluster.Masters(ctx); err != nil {
		return none, err
	}
	vlans, vnis := v.TagPools()
	facts.pools = append(facts.pools, poolToAPI("vlans", vlans), poolToAPI("vnis", vnis))
	for _, p := range v.AddressPools() {
		if p.Share() < nearlyFull || len(facts.pools) == fewPools {
			break
		}
		facts.pools = append(facts.pools, poolToAPI("addresses of "+p.Network.String(), p.Pool))
	}
	out := api.Diagnosis{Version: s.version.Version, Hosts: len(hosts), Findings: []api.Finding{}}
	out.Findings = append(out.Findings, ownerFindings(owners, repaired)...)
	out.Findings = append(out.Findings, facts.judge()...)
	sortFindings(out.Findings)
	return out, nil
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
	f := api.Finding{Check: api.CheckOwners, Where: o.Object, Severity: api.SeverityError, Text: o.Text}
	switch o.Kind {
	case control.OwnedByNobody: // costs room, and nothing else
		f.Severity, f.Remedy = api.SeverityWarning, "'netctl doctor --repair' frees it"
	case control.Leftover:
		f.Severity, f.Remedy = api.SeverityNotice, "nothing; 'netctl doctor --repair' frees it"
	case control.NotAllocated:
		f.Remedy = "'netctl doctor --repair' allocates it to its owner again"
		if !o.Repair {
			f.Remedy = "delete one of the two and create it anew: it gets another one"
		}
	case control.LacksObject:
		f.Remedy = "create what is missing again under that name, or delete what names it"
	case control.Unreadable:
		f.Remedy = "delete the object and create it anew, or restore a backup of the store"
	case control.NewerRecord:
		f.Severity, f.Check, f.Remedy = api.SeverityWarning, api.CheckVersions, "finish the upgrade of the netmasters"
	case control.UnknownRecord:
		f.Severity, f.Check, f.Remedy = api.SeverityWarning, api.CheckVersions, "finish the upgrade of the netmasters; if all are of one version, find out who else writes to the store"
	}
	if o.Repair {
		f.Repair = api.RepairPossible
	}
	return f
}
