package join

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/model"
)

const (
	// nearly is of how much of its quota a database is told of.
	nearly = 0.8
	// lowSpace is how many free bytes of a disk are told of: etcd makes its log in
	// pieces of 64 MB.
	lowSpace = 256 << 20
	// lookEvery is how often a member looks at itself and the others, and remindEvery
	// how often a trouble that lasts is told again.
	lookEvery   = 30 * time.Second
	remindEvery = 10 * time.Minute
)

// Status is how a member is, as it says itself.
type Status struct {
	Version string `json:"version"` // etcd's
	Leader  uint64 `json:"leader"`  // whom it takes for the leader; 0 = nobody
	Leads   bool   `json:"leads"`
	Learner bool   `json:"learner,omitempty"`
	Size    int64  `json:"size"`           // bytes of the database's file
	InUse   int64  `json:"inUse"`          // bytes of it that hold something
	Quota   int64  `json:"quota"`          // bytes that it may have
	Free    uint64 `json:"free"`           // bytes that its disk has left
	Full    bool   `json:"full,omitempty"` // it has raised the alarm: the cluster takes no writes
}

// Status looks at this member; it asks nobody.
func (m *Member) Status() Status {
	e := m.server.etcd.Server
	s := Status{
		Version: version.Version, Leader: e.Lead(), Learner: e.IsLearner(), Quota: m.cfg.Quota,
		Size: e.Backend().Size(), InUse: e.Backend().SizeInUse(),
	}
	s.Leads = s.Leader == uint64(e.MemberID())
	var st unix.Statfs_t
	if unix.Statfs(m.dir.path, &st) == nil {
		s.Free = st.Bavail * uint64(st.Bsize)
	}
	for _, a := range e.Alarms() {
		s.Full = s.Full || a.Alarm == etcdserverpb.AlarmType_NOSPACE && a.MemberID == uint64(e.MemberID())
	}
	return s
}

// Trouble says what to do about a member's space, before it is used up; "" = nothing.
func (s Status) Trouble() string {
	switch {
	case s.Full:
		return fmt.Sprintf("the store is full (%s of %s) and takes no writes: delete what is not needed and free its space with 'netctl cluster relieve'", mb(s.Size), mb(s.Quota))
	case float64(s.Size) > nearly*float64(s.Quota):
		return fmt.Sprintf("the store has %s of the %s that it may have, %s of it in use: when it is full the cluster takes no writes; 'netctl cluster relieve' frees what is not in use", mb(s.Size), mb(s.Quota), mb(s.InUse))
	case s.Free < lowSpace:
		return fmt.Sprintf("the disk of the store has %s left: when it is full this member ends; free some space there", mb(int64(s.Free))) //nolint:gosec // disks have less than 8 EiB
	}
	return ""
}

func mb(n int64) string { return fmt.Sprintf("%d MB", n/1e6) }

// Relieve gives the space that this member's database does not use back, and ends the
// alarm of a full store if there is room now. It answers no other request meanwhile.
// Where too much is in use it is model.ErrExhausted.
func (m *Member) Relieve(ctx context.Context) error {
	if err := m.server.etcd.Server.Defragment(); err != nil {
		return fmt.Errorf("give unused space back: %w", err)
	}
	s := m.Status()
	if float64(s.Size) > nearly*float64(s.Quota) {
		return model.Errorf(model.ErrExhausted, "%s of the %s that the store may have are in use: delete what is not needed, or give it more", mb(s.Size), mb(s.Quota))
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

// watch renews the certificate in time, and tells people what endangers the store:
// each member of itself, the leader of all.
func (m *Member) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	told, last := "", time.Time{}
	for {
		if err := m.peers.renew(); err != nil {
			m.cfg.Logger.Error("the member's certificate is not renewed", "error", err)
		}
		text := strings.Join(m.look(ctx), "\n")
		switch {
		case text == "" && told != "":
			m.cfg.Logger.Info("the store is out of danger")
		case text != "" && (numberless(text) != told || time.Since(last) >= remindEvery):
			for line := range strings.SplitSeq(text, "\n") {
				m.cfg.Logger.Warn("the store is in danger", "what", line)
			}
			last = time.Now()
		}
		told = numberless(text)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look is what there is to be told of now.
func (m *Member) look(ctx context.Context) []string {
	s := m.Status()
	if s.Leads {
		if all, err := m.List(ctx); err == nil {
			return Warnings(all)
		}
	}
	if t := s.Trouble(); t != "" {
		return []string{t}
	}
	return nil
}

// numberless is a text without its digits: a size that changes is no news.
func numberless(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}
