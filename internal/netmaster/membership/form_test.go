package membership

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// record stands for the ConfigMap and the Lease: the first netmaster that asks may found, and
// the others may once the Lease is lost.
type record struct {
	mu      sync.Mutex
	text    []byte
	holder  string
	lost    bool // the Lease: every netmaster takes it
	founded []string
	changed chan struct{}
}

func newRecord() *record { return &record{changed: make(chan struct{})} }

func (r *record) await(ctx context.Context, node string) ([]byte, error) {
	for {
		r.mu.Lock()
		if r.holder == "" {
			r.holder = node
		}
		text, may, changed := r.text, r.lost || r.holder == node, r.changed
		r.mu.Unlock()
		if text != nil || may {
			return text, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *record) put(node string, authority []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.text != nil && !bytes.Equal(r.text, authority) {
		return model.Errorf(model.ErrExists, "recorded")
	}
	if r.text == nil {
		r.founded = append(r.founded, node)
		close(r.changed)
	}
	r.text = authority
	return nil
}

// forming has a member form a cluster with others by the record. Its token says its node.
func (r *record) forming(cfg Config, doors ...string) Config {
	node := cfg.Name
	cfg.Name, cfg.Secure, cfg.Addresses = "", []string{"127.0.0.1"}, doors
	cfg.Forming = recording{r, node}
	return cfg
}

// recording is a node's Forming by a record.
type recording struct {
	record *record
	node   string
}

func (f recording) Node() string { return f.node }

func (f recording) Await(ctx context.Context) ([]byte, error) { return f.record.await(ctx, f.node) }

func (f recording) Record(_ context.Context, authority []byte) error {
	return f.record.put(f.node, authority)
}

func (f recording) Token() (string, error) { return "token of " + f.node, nil }

func (f recording) Review(_ context.Context, token string) (node, by string, err error) {
	of, ok := strings.CutPrefix(token, "token of ")
	if !ok {
		return "", "", model.Errorf(model.ErrInvalid, "it is not of a netmaster")
	}
	return of, "pod of " + of, nil
}

// TestThreeEmptyNetmastersFormOneCluster: three netmasters with empty directories start at once, each believes that it
// holds the Lease, and they form one cluster. A member whose directory was lost gets its
// place back under its name. Tokens of other nodes, and of members that live, are refused.
func TestThreeEmptyNetmastersFormOneCluster(t *testing.T) {
	t.Parallel()
	r := newRecord()
	r.lost = true
	var cfgs []Config
	var doors []string
	for i, name := range []string{"n1", "n2", "n3"} {
		cfgs = append(cfgs, config(t, 141+i, name))
		doors = append(doors, cfgs[i].EnrollmentAddress)
	}
	testenv.SkipShort(t)
	members := make([]*Member, len(cfgs))
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	var starting sync.WaitGroup
	for i := range cfgs {
		cfgs[i] = r.forming(cfgs[i], doors...)
		starting.Go(func() {
			var err error
			if members[i], err = Start(ctx, cfgs[i]); err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { closed(t, members[i]) })
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	roster := func(m *Member) (roles []string) {
		all, err := m.Roster.List(t.Context())
		if err != nil {
			t.Error(err)
		}
		for _, i := range all {
			roles = append(roles, i.Name+" "+string(i.Role))
		}
		return roles
	}
	want := []string{"n1 voter", "n2 voter", "n3 voter"}
	if got := roster(members[0]); !slices.Equal(got, want) || len(r.founded) != 1 {
		t.Fatalf("members %v, founded by %v", got, r.founded)
	}

	q := request{Account: "token of n3", Dir: strings.Repeat("x", 36), Name: "n3", Peer: address(144, 1), EnrollmentAddress: address(144, 2), Secure: true}
	admit := func(change func(*request)) error {
		q := q
		change(&q)
		_, err := members[0].Enrolment.enrollMember(t.Context(), q)
		return err
	}
	is(t, "another node's name", admit(func(q *request) { q.Account = "token of n4" }), model.ErrInvalid, "pod of n4 on the node n4, and this is the member n3")
	is(t, "a host's token", admit(func(q *request) { q.Account = "x" }), model.ErrInvalid, "not of a netmaster")
	is(t, "a member that lives", admit(func(*request) {}), model.ErrConflict, "n3 is alive")
	is(t, "an address that a member has", admit(func(q *request) {
		q.Account, q.Name, q.Peer = "token of n4", "n4", cfgs[0].Peer
	}), model.ErrExists, "the address "+cfgs[0].Peer)
	if got := roster(members[0]); !slices.Equal(got, want) {
		t.Errorf("after refusals: %v", got)
	}

	closed(t, members[2])
	again := cfgs[2]
	again.Dir = filepath.Join(t.TempDir(), "empty")
	m := start(t, again)
	if got := roster(m); !slices.Equal(got, want) || m.Name() != "n3" {
		t.Errorf("after the directory of n3 was lost: %v", got)
	}
	closed(t, m)
	again.Forming = r.forming(config(t, 143, "another-name"), doors...).Forming
	if m = start(t, again); m.Name() != "n3" || len(r.founded) != 1 {
		t.Errorf("started again: it is %s, and founders are %v", m.Name(), r.founded)
	}
}

// TestRecordedClusterIsAwaited: a netmaster with an empty directory founds nothing while a cluster
// is recorded whose members do not answer. It says so, and joins once one answers.
func TestRecordedClusterIsAwaited(t *testing.T) {
	t.Parallel()
	r := newRecord()
	aCfg := config(t, 145, "a")
	door := aCfg.EnrollmentAddress
	aCfg = r.forming(aCfg)
	closed(t, start(t, aCfg))
	testenv.SkipShort(t)
	bCfg := r.forming(config(t, 146, "b"), door)
	waits := make(chan struct{}, 1)
	bCfg.Logger = slog.New(slog.NewTextHandler(logged{"founds no other one", waits}, nil))
	type started struct {
		m   *Member
		err error
	}
	done := make(chan started, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	go func() {
		m, err := Start(ctx, bCfg)
		done <- started{m, err}
	}()
	<-waits
	if _, err := os.Stat(filepath.Join(bCfg.Dir, dataName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it has data: %v", err)
	}
	start(t, aCfg)
	b := <-done
	if b.err != nil {
		t.Fatal(b.err)
	}
	t.Cleanup(func() { closed(t, b.m) })
	if !slices.Equal(r.founded, []string{"a"}) {
		t.Errorf("founders: %v", r.founded)
	}
}

// logged tells of lines with a text.
type logged struct {
	text string
	said chan<- struct{}
}

// Write implements io.Writer.
func (l logged) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(l.text)) {
		select {
		case l.said <- struct{}{}:
		default:
		}
	}
	return len(b), nil
}

// TestUnusedDirectoryIsContinued: a directory in which etcd never ran goes on with what it began, and else
// begins again; what it had is set aside.
func TestUnusedDirectoryIsContinued(t *testing.T) {
	t.Parallel()
	ours, other := Fingerprint{1}, Fingerprint{2}
	for what, tc := range map[string]struct {
		step       step
		authority  string // of what it asked
		peer       string
		own, known bool // it has an authority of its own, which is recorded
		record     []Fingerprint
		joins      *Fingerprint // nil = it founds
		discards   bool
	}{
		"new, no record":                     {},
		"new, a record":                      {record: []Fingerprint{other}, joins: &other},
		"founder, no record":                 {step: founding, own: true},
		"founder, recorded":                  {step: founding, own: true, known: true},
		"founder, another is recorded":       {step: founding, own: true, record: []Fingerprint{other}, joins: &other, discards: true},
		"killed before its authority":        {step: founding, record: []Fingerprint{other}, joins: &other, discards: true},
		"it asked":                           {step: requested, authority: ours.String(), peer: "h:1", record: []Fingerprint{ours}, joins: &ours},
		"admitted":                           {step: admitted, authority: ours.String(), peer: "h:1", record: []Fingerprint{ours}, joins: &ours},
		"admitted, the authority is renewed": {step: admitted, authority: ours.String(), peer: "h:1", record: []Fingerprint{other, ours}, joins: &ours},
		"admitted at another address":        {step: admitted, authority: ours.String(), peer: "h:2", record: []Fingerprint{ours}, joins: &ours, discards: true},
		"admitted to another cluster":        {step: admitted, authority: ours.String(), peer: "h:1", record: []Fingerprint{other}, joins: &other, discards: true},
		"admitted, the record was emptied":   {step: admitted, authority: ours.String(), peer: "h:1", discards: true},
	} {
		d, err := openDirectory(filepath.Join(t.TempDir(), "d"))
		if err != nil {
			t.Fatal(err)
		}
		d.state = state{ID: "x", Step: tc.step, Authority: tc.authority, Peer: tc.peer}
		if err := d.save(); err != nil {
			t.Fatal(err)
		}
		known := tc.record
		if tc.own {
			a, err := makeAuthority(d)
			if err != nil {
				t.Fatal(err)
			}
			if tc.known {
				known = fingerprints(a.Text())
			}
		}
		m := newMember(&local{cfg: Config{Peer: "h:1"}, dir: d})
		got, err := m.prepare(known)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if (got == nil) != (tc.joins == nil) || got != nil && got.Authority != *tc.joins {
			t.Errorf("%s: joins by %v", what, got)
		}
		_, err = os.Stat(filepath.Join(d.path, "join.discarded", stateName))
		if discarded := err == nil; discarded != tc.discards || (d.Step == "") != (tc.discards || tc.step == "") {
			t.Errorf("%s: set aside %v, and it is at step %q", what, discarded, d.Step)
		}
		if _, err := pki.Open(d.own(authorityDir)); (err == nil) != (tc.own && !tc.discards) {
			t.Errorf("%s: its authority: %v", what, err)
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestKilledFounderFoundsTheRecordedCluster: a founder that was killed after it recorded its authority founds the
// cluster when it starts again, and the record is not written a second time.
func TestKilledFounderFoundsTheRecordedCluster(t *testing.T) {
	t.Parallel()
	r := newRecord()
	cfg := r.forming(config(t, 147, "a"))
	ctx, kill := context.WithCancel(t.Context())
	cfg.step = func(step string) {
		if step == "published" {
			kill()
		}
	}
	if m, err := Start(ctx, cfg); err == nil {
		t.Error("it was not killed")
		closed(t, m)
	}
	cfg.step = nil
	m := start(t, cfg)
	if !slices.Equal(r.founded, []string{"a"}) || !slices.Equal(fingerprints(r.text), []Fingerprint{fingerprint(m.peers.auth.Load())}) {
		t.Errorf("founders: %v", r.founded)
	}
	if _, err := m.Roster.List(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestGrownClusterIsRestored: a netmaster that was alone becomes the recorded cluster's first member
// with its data, and others join it. So they do after it was restored, with the authorities
// that it had.
func TestGrownClusterIsRestored(t *testing.T) {
	t.Parallel()
	r := newRecord()
	alone := config(t, 148, "alone")
	alone.Secure = []string{"127.0.0.1"}
	m := start(t, alone)
	if err := r.put("alone", m.peers.auth.Load().Text()); err != nil {
		t.Fatal(err)
	}
	file := backedUp(t, m)
	closed(t, m)

	first := r.forming(config(t, 149, "node1"))
	first.Dir = alone.Dir
	second := r.forming(config(t, 150, "node2"), first.EnrollmentAddress)
	names := func(m *Member) (all []string) {
		list, err := m.Roster.List(t.Context())
		if err != nil {
			t.Error(err)
		}
		for _, i := range list {
			all = append(all, i.Name+" "+i.Peer)
		}
		return all
	}
	m = start(t, first)
	b := start(t, second)
	if got := names(b); !slices.Equal(got, []string{"alone " + first.Peer, "node2 " + second.Peer}) {
		t.Errorf("members: %v", got)
	}
	closed(t, b)
	closed(t, m)
	if _, err := Restore(t.Context(), RestoreConfig{File: file, DataDir: first.Dir, Logger: first.Logger, Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	second.Dir = filepath.Join(t.TempDir(), "empty")
	start(t, first)
	if got := names(start(t, second)); !slices.Equal(got, []string{"node1 " + first.Peer, "node2 " + second.Peer}) {
		t.Errorf("members after a restore: %v", got)
	}
	if !slices.Equal(r.founded, []string{"alone"}) {
		t.Errorf("founders: %v", r.founded)
	}
}
