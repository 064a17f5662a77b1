package membership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/jointoken"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

const (
	// nearlyFull is the share of its quota above which a database is reported.
	nearlyFull = 0.8
	// lowSpace is how many free bytes of a disk are reported as too few: etcd writes its
	// log in segments of 64 MB.
	lowSpace = 256 << 20
	// checkInterval is how often a member checks itself; at each othersEvery-th check it checks
	// the others too. remindEvery is how often a lasting problem is logged again.
	checkInterval = 3 * time.Second
	othersEvery   = 10
	remindEvery   = 10 * time.Minute
)

// Status is how a member is, as it says itself.
type Status struct {
	Version string              `json:"version"` // etcd's
	Leader  uint64              `json:"leader"`  // the leader as it knows it; 0 = none
	Leads   bool                `json:"leads"`
	Learner bool                `json:"learner,omitempty"`
	Size    int64               `json:"size"`           // bytes of the database's file
	InUse   int64               `json:"inUse"`          // bytes of it that hold something
	Quota   int64               `json:"quota"`          // bytes that it may have
	Free    uint64              `json:"free"`           // bytes that its disk has left
	Full    bool                `json:"full,omitempty"` // it has raised the alarm: the cluster takes no writes
	Ends    []CertificateExpiry `json:"ends,omitempty"`
	// Unsaved is why the last snapshot of the schedule was not made, or that it is too old;
	// "" = it was and is not, or there is no schedule.
	Unsaved string `json:"unsaved,omitempty"`
	// Renews says that it takes authorities that another member renewed.
	Renews bool `json:"renews,omitempty"`
	// External says that the store is elsewhere: all else about it is empty.
	External bool `json:"external,omitempty"`
}

// Status checks this member; it sends no request.
func (m *Health) Status() Status {
	if m.cfg.Store != nil {
		return Status{Leader: elsewhere, Free: m.dir.free(), External: true}
	}
	e := m.server.etcd.Server
	s := Status{
		Version: version.Version, Leader: e.Lead(), Learner: e.IsLearner(), Quota: m.cfg.Quota,
		Size: e.Backend().Size(), InUse: e.Backend().SizeInUse(),
	}
	s.Leads = s.Leader == uint64(e.MemberID())
	s.Free = m.dir.free()
	for _, a := range e.Alarms() {
		s.Full = s.Full || a.Alarm == etcdserverpb.AlarmType_NOSPACE && a.MemberID == uint64(e.MemberID())
	}
	if why := m.unsaved.Load(); why != nil {
		s.Unsaved = (*why).Error()
	} else if m.cfg.Backup.Dir != "" {
		s.Unsaved = m.cfg.Backup.whyTooOld(time.Now(), m.began)
	}
	return s
}

// SpaceProblem says what to do about a member's space, before it is used up, and about its
// snapshots; "" = nothing.
func (s Status) SpaceProblem() string {
	switch {
	case s.Full:
		return fmt.Sprintf("the store is full (%s of %s) and takes no writes: delete what is not needed and free its space with 'netctl cluster relieve'", mb(s.Size), mb(s.Quota))
	case float64(s.Size) > nearlyFull*float64(s.Quota):
		return fmt.Sprintf("the store has %s of the %s that it may have, %s of it in use: when it is full the cluster takes no writes; 'netctl cluster relieve' frees what is not in use", mb(s.Size), mb(s.Quota), mb(s.InUse))
	case s.Free < lowSpace && !s.External:
		return fmt.Sprintf("the store's disk has %s free: when it is full netmaster ends; free some space there", mb(int64(s.Free))) //nolint:gosec // disks have less than 8 EiB
	case s.Unsaved != "":
		return fmt.Sprintf("no snapshot of the store was made (%s): see that --snapshot-dir has room and can be written", s.Unsaved)
	}
	return ""
}

func mb(n int64) string { return fmt.Sprintf("%d MB", n/1e6) }

// Defragment gives the space that this member's database does not use back, and ends the
// alarm of a full store if there is room now. It answers no other request meanwhile.
// Where too much is in use it is model.ErrExhausted.
func (m *Health) Defragment(ctx context.Context) error {
	if m.cfg.Store != nil {
		return model.Errorf(model.ErrConflict, "the store is an etcd of your own: free its space with etcdctl defrag")
	}
	if err := m.server.etcd.Server.Defragment(); err != nil {
		return fmt.Errorf("release unused space: %w", err)
	}
	s := m.Status()
	if float64(s.Size) > nearlyFull*float64(s.Quota) {
		return model.Errorf(model.ErrExhausted, "%s of the %s that the store may have are in use: delete what is not needed", mb(s.Size), mb(s.Quota))
	}
	if !s.Full {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: uint64(m.server.etcd.Server.MemberID()), Alarm: etcdserverpb.AlarmType_NOSPACE}
	if _, err := m.server.etcd.Server.Alarm(ctx, a); err != nil {
		return unavailable(err)
	}
	return nil
}

// DefragmentAll relieves each member, one after the other, so that with three members a
// majority always answers. Members that do not answer are reported at the end.
func (m *Roster) DefragmentAll(ctx context.Context) error {
	all, err := m.List(ctx)
	if err != nil {
		return err
	}
	c, err := m.memberClient(enrollmentTimeout)
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	for _, i := range all {
		switch {
		case i.EnrollmentAddress == "" && i.Name != m.dir.Name || i.Role == Waiting || i.Role == Removed:
			continue
		case i.Name == m.dir.Name:
			if e := m.health.Defragment(ctx); e != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", i.Name, e))
			}
			continue
		}
		if e := jointoken.Call(ctx, c, http.MethodPost, transport.HTTPS+"://"+i.EnrollmentAddress+defragmentPath, nil, &Status{}); e != nil && jointoken.IsKind(e) {
			err = errors.Join(err, fmt.Errorf("%s: %w", i.Name, e))
		} else if e != nil {
			err = errors.Join(err, model.Errorf(model.ErrUnavailable, "%s does not answer: %w; repeat this when it does", i.Name, e))
		}
	}
	return err
}

// watch renews the certificate in time, and tells people what endangers the store:
// each member of itself, the leader of all.
func (m *Member) watch(ctx context.Context) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	told, last := "", time.Time{}
	var others otherMembers
	for n := 0; ; n++ {
		if n%othersEvery == 0 {
			m.Authorities.followAll(ctx)
			if err := m.Authorities.renewOwn(); err != nil {
				m.cfg.Logger.Error("this netmaster's certificate for clients is not renewed", "error", err)
			}
			if err := m.Authorities.renewPeer(); err != nil {
				m.cfg.Logger.Error("the member's certificate is not renewed", "error", err)
			}
			if err := m.Enrolment.sweepTokens(ctx); err != nil && ctx.Err() == nil {
				m.cfg.Logger.Warn("the join tokens in the store cannot be read", "error", err)
			}
		}
		if n%othersEvery == 0 || others.unconfirmed() {
			others.found(m.Roster.checkOthers(ctx))
		}
		lines := others.confirmed()
		if own := m.Health.Problem(); own != "" {
			lines = append([]string{own}, lines...)
		}
		text := strings.Join(lines, "\n")
		switch {
		case text == "" && told != "":
			m.cfg.Logger.Info("the store is healthy again")
		case text != "" && (withoutDigits(text) != told || time.Since(last) >= remindEvery):
			for _, line := range lines {
				m.cfg.Logger.Warn("the store is in danger", "what", line)
			}
			last = time.Now()
		}
		told = withoutDigits(text)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// otherMembers is what the leader has found of the others. A member that restarts is no danger
// yet: a problem is reported once several checks in a row have found it.
type otherMembers struct {
	lines  []string
	checks int // in a row that found something
}

// confirmations is how many checks in a row have to find a problem: 9 s.
const confirmations = 4

func (o *otherMembers) found(lines []string) {
	if o.lines = lines; len(lines) == 0 {
		o.checks = 0
	} else {
		o.checks++
	}
}

// unconfirmed reports whether to check again at once.
func (o *otherMembers) unconfirmed() bool { return o.checks > 0 && o.checks < confirmations }

func (o *otherMembers) confirmed() []string {
	if o.checks < confirmations {
		return nil
	}
	return o.lines
}

// checkOthers is what the leader has to tell of the cluster beside itself.
func (m *Roster) checkOthers(ctx context.Context) []string {
	if !m.health.Status().Leads {
		return nil
	}
	all, err := m.List(ctx)
	if err != nil {
		return nil // the next look says more
	}
	return slices.DeleteFunc(Warnings(all), func(w string) bool { return strings.HasPrefix(w, m.dir.Name+": ") })
}

// withoutDigits is a text without its digits: a size that changes is no news.
func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}
